"""The tests that every backend must pass."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from trivet.errors import BackendError, ShapeError
from trivet.plans.backend import Backend, Built, FailureKind
from trivet.plans.graph import identify
from trivet.plans.host import read_host
from trivet.plans.key import plan_key
from trivet.plans.model import Dimension
from trivet.testing.backend_processes import (
    facts_work,
    fields_key,
    key_work,
    load,
    load_work,
    make,
    new_process,
)

if TYPE_CHECKING:
    import numpy as np

    Arrays = dict[str, np.ndarray[Any, Any]]

_THREADS = 2
_RUNS_PER_THREAD = 10


def _snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


class BackendContract:
    """Subclass it in a test module, set the class variables, override fixtures, and pytest runs it.

    ::

        from trivet.testing import BackendContract

        class TestMyBackend(BackendContract):
            factory = "mypackage.backend:MyBackend"
            framework = "myframework"
            refused = {"options": {"NO_SUCH_OPTION": "1"}}

            @pytest.fixture
            def model(self, tmp_path):
                ...  # a small model file, alone in its folder

            @pytest.fixture
            def inputs(self):
                return {"x": np.ones((2, 8), np.float32)}

    Attributes:
        factory: ``"module:callable"`` that makes the backend, importable in a new process.
        options: keyword arguments for it.
        framework: the module that only `warm_import`, `compile`, `load` and `fallback` may import.
        refused: keyword arguments that must be refused with `BackendError`, at construction or at
            import.
        relative, absolute: how far a plan may be from the uncompiled model.
    """

    factory: ClassVar[str]
    framework: ClassVar[str]
    refused: ClassVar[Mapping[str, Any]]
    options: ClassVar[Mapping[str, Any]] = {}
    relative: ClassVar[float] = 1e-4
    absolute: ClassVar[float] = 1e-5

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        """A small model file with weights, alone in its folder."""
        raise NotImplementedError("override the fixture `model`")

    @pytest.fixture
    def inputs(self) -> Arrays:
        """Inputs that the model takes; a float input among them."""
        raise NotImplementedError("override the fixture `inputs`")

    @pytest.fixture
    def shapes(self) -> Mapping[str, tuple[Dimension, ...]]:
        """Sizes that fit ``inputs``; override it where the model has free axes."""
        return {}

    @pytest.fixture
    def backend(self) -> Backend:
        return make(self._task())

    @pytest.fixture
    def built(self, backend: Backend, model: Path, plan: Path) -> Built:
        """The model, compiled into ``plan``."""
        return backend.compile(model, identify(model), {}, plan)

    @pytest.fixture
    def plan(self, tmp_path: Path) -> Path:
        folder = tmp_path / "plan"
        folder.mkdir()
        return folder

    def _task(self, **more: object) -> dict[str, Any]:
        return {
            "factory": self.factory,
            "options": dict(self.options),
            "framework": self.framework,
            **more,
        }

    def _assert_close(self, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        import numpy as np

        assert list(found) == list(expected)
        for name in expected:
            assert found[name].dtype == expected[name].dtype
            np.testing.assert_allclose(
                found[name], expected[name], rtol=self.relative, atol=self.absolute
            )

    # -- facts and keys ------------------------------------------------------------------------

    def test_facts_key_and_lint_do_not_import_the_framework(self) -> None:
        answer = new_process(facts_work, self._task())
        assert answer["imported"] is False
        assert answer["facts"]["version"] not in ("", "unknown")
        assert answer["facts"]["libraries"]
        assert all(len(digest) == 64 for digest in answer["facts"]["libraries"].values())

    def test_key_fields_fit_into_a_plan_key(self, backend: Backend, model: Path) -> None:
        host = read_host({})
        fields = backend.key_fields(host)
        key = plan_key(
            identify(model), {}, backend.name, backend.facts(), fields, host, portable=False
        )
        assert set(fields) < set(key)

    def test_key_fields_are_the_same_in_another_process_and_folder(
        self, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mine = fields_key(backend).digest.hex()
        monkeypatch.chdir(tmp_path)
        for seed in ("1", "2"):
            assert new_process(key_work, self._task(), PYTHONHASHSEED=seed) == mine

    def test_options_that_can_not_be_honoured_are_refused(self) -> None:
        with pytest.raises(BackendError):
            make(self._task(options={**self.options, **self.refused})).warm_import()

    def test_default_options_have_no_findings(self) -> None:
        assert make(self._task(options={})).lint() == []

    def test_accepts_files_by_their_suffix(self, backend: Backend, model: Path) -> None:
        assert backend.accepts(model)
        assert not backend.accepts(model.with_suffix(".no-such-model"))

    # -- compile, load, run --------------------------------------------------------------------

    def test_a_plan_gives_what_the_model_gives(
        self, backend: Backend, model: Path, inputs: Arrays, built: Built, plan: Path
    ) -> None:
        expected = backend.fallback(model, {}).run(inputs)
        self._assert_close(built.executable.run(inputs), expected)
        self._assert_close(load(backend, plan, built.detail, model).run(inputs), expected)

    def test_a_plan_for_given_shapes_gives_the_same(
        self,
        backend: Backend,
        model: Path,
        inputs: Arrays,
        shapes: Mapping[str, tuple[Dimension, ...]],
        plan: Path,
    ) -> None:
        built = backend.compile(model, identify(model), shapes, plan)
        expected = backend.fallback(model, shapes).run(inputs)
        self._assert_close(built.executable.run(inputs), expected)

    def test_the_canary_is_run_on_the_model_before_it_is_written(
        self, backend: Backend, model: Path, inputs: Arrays, plan: Path
    ) -> None:
        built = backend.compile(model, identify(model), {}, plan, inputs)
        assert built.expected is not None
        self._assert_close(built.expected, backend.fallback(model, {}).run(inputs))

    def test_a_canary_that_the_model_does_not_take_harms_nothing(
        self, backend: Backend, model: Path, inputs: Arrays, plan: Path
    ) -> None:
        import numpy as np

        built = backend.compile(model, identify(model), {}, plan, {"no such input": np.zeros(1)})
        assert built.expected is None
        self._assert_close(built.executable.run(inputs), backend.fallback(model, {}).run(inputs))

    def test_names_and_types_are_those_of_the_graph(self, model: Path, built: Built) -> None:
        graph = identify(model)
        for found, wanted in (
            (built.executable.inputs, graph.inputs),
            (built.executable.outputs, graph.outputs),
        ):
            assert [(each.name, each.dtype) for each in found] == [
                (each.name, each.dtype) for each in wanted
            ]

    def test_detail_is_plain_data(self, built: Built) -> None:
        decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(built.detail))
        assert decoded.keys() == built.detail.keys()

    def test_compile_writes_only_into_staging(
        self,
        backend: Backend,
        model: Path,
        plan: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name in ("here", "temporary", "home"):
            (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        before = _snapshot(tmp_path)
        backend.compile(model, identify(model), {}, plan)
        after = _snapshot(tmp_path)
        changed = {
            name for name in after.keys() | before.keys() if after.get(name) != before.get(name)
        }
        assert any(name.startswith("plan/") for name in changed)
        assert {name for name in changed if name.split("/")[0] != "plan"} == set()

    def test_a_loaded_plan_survives_renaming_and_unlinking_its_folder(
        self,
        backend: Backend,
        model: Path,
        built: Built,
        plan: Path,
        inputs: Arrays,
        tmp_path: Path,
    ) -> None:
        expected = built.executable.run(inputs)
        loaded = load(backend, plan, built.detail, model)
        moved = plan.rename(tmp_path / "published")
        self._assert_close(built.executable.run(inputs), expected)
        self._assert_close(load(backend, moved, built.detail, model).run(inputs), expected)
        for path in moved.iterdir():
            path.unlink()
        self._assert_close(loaded.run(inputs), expected)

    def test_another_process_loads_the_plan_from_a_read_only_folder(
        self, model: Path, built: Built, plan: Path, inputs: Arrays, tmp_path: Path
    ) -> None:
        for path in plan.iterdir():
            path.chmod(0o400)
        plan.chmod(0o500)
        before = _snapshot(plan)
        try:
            assert self._load_elsewhere([plan], model, built, inputs, tmp_path) == [""]
        finally:
            plan.chmod(0o700)
        assert _snapshot(plan) == before

        import numpy as np

        with np.load(tmp_path / "outputs.npz") as found:
            self._assert_close(dict(found), built.executable.run(inputs))

    def test_missing_and_truncated_files_raise_instead_of_crashing(
        self, model: Path, built: Built, plan: Path, inputs: Arrays, tmp_path: Path
    ) -> None:
        folders = []
        for path in plan.iterdir():
            for damage in ("missing", "empty", "half"):
                folder = tmp_path / f"{path.name}.{damage}"
                folder.mkdir()
                for each in plan.iterdir():
                    content = each.read_bytes()
                    if each == path:
                        content = content[: len(content) // 2] if damage == "half" else b""
                    if each != path or damage != "missing":
                        (folder / each.name).write_bytes(content)
                folders.append(folder)
        answers = self._load_elsewhere(folders, model, built, inputs, tmp_path)
        assert [f.name for f, answer in zip(folders, answers, strict=True) if not answer] == []

    def _load_elsewhere(
        self, folders: list[Path], model: Path, built: Built, inputs: Arrays, scratch: Path
    ) -> list[str]:
        import numpy as np

        np.savez(scratch / "inputs.npz", **inputs)  # type: ignore[arg-type]
        answers: list[str] = new_process(
            load_work,
            self._task(
                folders=[str(folder) for folder in folders],
                model=str(model),
                detail=msgspec.to_builtins(built.detail),
                inputs=str(scratch / "inputs.npz"),
                outputs=str(scratch / "outputs.npz"),
            ),
        )
        return answers

    # -- running -------------------------------------------------------------------------------

    def test_threads_run_one_plan_at_once(self, built: Built, inputs: Arrays) -> None:
        start = threading.Barrier(_THREADS)
        variants = [
            {k: v * v.dtype.type(n + 1) if v.dtype.kind == "f" else v for k, v in inputs.items()}
            for n in range(_THREADS)
        ]
        expected = [built.executable.run(each) for each in variants]

        def work(number: int) -> list[Arrays]:
            start.wait()
            return [built.executable.run(variants[number]) for _ in range(_RUNS_PER_THREAD)]

        with ThreadPoolExecutor(_THREADS) as pool:
            for number, results in enumerate(pool.map(work, range(_THREADS))):
                for each in results:
                    self._assert_close(each, expected[number])

    def test_outputs_are_the_callers_own(self, built: Built, inputs: Arrays) -> None:
        given = {name: each.copy() for name, each in inputs.items()}
        first = built.executable.run(inputs)
        kept = {name: each.copy() for name, each in first.items()}
        other = {k: v * v.dtype.type(3) if v.dtype.kind == "f" else v for k, v in inputs.items()}
        built.executable.run(other)
        self._assert_close(first, kept)
        for each in first.values():
            each[...] = 0
        self._assert_close(built.executable.run(inputs), kept)
        self._assert_close(inputs, given)

    def test_inputs_that_do_not_fit_are_a_shape_error(self, built: Built, inputs: Arrays) -> None:
        import numpy as np

        name = next(k for k, v in inputs.items() if v.dtype.kind == "f")
        rest = {k: v for k, v in inputs.items() if k != name}
        for wrong in (
            rest,
            {**inputs, "no such input": inputs[name]},
            {**inputs, name: inputs[name].astype(np.complex128)},
            {**inputs, name: inputs[name][np.newaxis]},
        ):
            with pytest.raises(ShapeError):
                built.executable.run(wrong)

    # -- failures ------------------------------------------------------------------------------

    def test_a_file_that_is_no_model_fails_for_good(
        self, backend: Backend, model: Path, plan: Path, tmp_path: Path
    ) -> None:
        broken = tmp_path / f"broken{model.suffix}"
        broken.write_bytes(b"not a model at all")
        with pytest.raises(Exception) as caught:
            backend.compile(broken, identify(model), {}, plan)
        assert backend.classify(caught.value) is FailureKind.DETERMINISTIC

    def test_what_the_machine_lacks_is_never_recorded(self, backend: Backend) -> None:
        for error in (
            MemoryError(),
            OSError(errno.ENOSPC, "No space left on device"),
            OSError(errno.EMFILE, "Too many open files"),
            KeyboardInterrupt(),
        ):
            assert backend.classify(error) is FailureKind.TRANSIENT

    def test_tolerance_is_a_pair_of_small_numbers(self, backend: Backend) -> None:
        assert all(0 <= bound < 0.1 for bound in backend.tolerance())
