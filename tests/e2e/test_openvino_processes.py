"""The OpenVINO backend across processes: what it imports, writes, survives and keeps in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper
from tests.support.onnx_models import mlp, model, save, tensor

from trivet.plans.backends.openvino import PLAN_FILE, OpenVino
from trivet.plans.model import GraphId

GRAPH = GraphId(
    format="onnx",
    structure=b"s",
    weights=b"w",
    metadata=b"m",
    inputs=(),
    outputs=(),
    operators=(),
    sources=(),
)


def python(code: str, *arguments: object, **environment: str) -> Any:
    """Run ``code`` in a new process with only ``environment`` set; returns the JSON it prints.

    The process must exit with 0 and leave its standard error empty.
    """
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**kept, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def plan(folder: Path, backend: OpenVino | None = None) -> tuple[dict[str, Any], list[float]]:
    """Compile the small model into ``folder``; its detail, and its result for ones."""
    source = save(mlp(), folder.parent / "mlp.onnx")
    folder.mkdir()
    built = (backend or OpenVino()).compile(source, GRAPH, {}, folder)
    found = built.executable.run({"x": np.ones((4, 16), np.float32)})
    return dict(built.detail), found["y"].ravel().tolist()


LOAD = """
    import json, sys
    from pathlib import Path
    import numpy as np
    from trivet.plans.backends.openvino import OpenVino
    executable = OpenVino().load(Path(sys.argv[1]), json.loads(sys.argv[2]))
    print(json.dumps(executable.run({"x": np.ones((4, 16), np.float32)})["y"].ravel().tolist()))
"""


def test_another_process_loads_a_moved_plan_and_gets_the_same_numbers(tmp_path: Path) -> None:
    detail, expected = plan(tmp_path / "plan")
    (tmp_path / "plan").rename(tmp_path / "moved")
    assert python(LOAD, tmp_path / "moved", json.dumps(detail)) == expected


def test_a_damaged_plan_is_an_error_and_never_a_crash(tmp_path: Path) -> None:
    """Files are verified before they are loaded; this is for when that is switched off or wrong."""
    detail, _ = plan(tmp_path / "plan")
    whole = (tmp_path / "plan" / PLAN_FILE).read_bytes()
    folders = []
    for kept in (1, 60, 200, len(whole) // 2, len(whole) - 100):
        folder = tmp_path / f"cut{kept}"
        folder.mkdir()
        (folder / PLAN_FILE).write_bytes(whole[:kept])
        folders.append([str(folder), {**detail, "size": kept}])
    outcomes = python(
        """
        import json, sys
        from pathlib import Path
        from trivet.plans.backends.openvino import OpenVino
        backend, outcomes = OpenVino(), []
        for folder, detail in json.loads(sys.argv[1]):
            try:
                backend.load(Path(folder), detail)
                outcomes.append("loaded")
            except Exception as error:
                outcomes.append(type(error).__name__)
        print(json.dumps(outcomes))
        """,
        json.dumps(folders),
    )
    assert outcomes == ["RuntimeError"] * len(folders)


def test_a_plan_for_a_wider_instruction_set_is_refused_by_openvino_too(tmp_path: Path) -> None:
    """The key keeps such plans apart; this is the second line, and says that it still holds."""
    detail, _ = plan(tmp_path / "plan")
    error = python(
        """
        import json, sys
        from pathlib import Path
        from trivet.plans.backends.openvino import OpenVino
        try:
            OpenVino().load(Path(sys.argv[1]), json.loads(sys.argv[2]))
            print(json.dumps("loaded"))
        except RuntimeError as error:
            print(json.dumps(str(error)))
        """,
        tmp_path / "plan",
        json.dumps(detail),
        ONEDNN_MAX_CPU_ISA="SSE41",
    )
    assert "mismatch" in error


def test_loading_imports_the_extension_alone_and_the_package_still_imports_later(
    tmp_path: Path,
) -> None:
    detail, _ = plan(tmp_path / "plan")
    loaded = python(
        """
        import json, sys
        from pathlib import Path
        from trivet.plans.backends.openvino import OpenVino
        plan = OpenVino().load(Path(sys.argv[1]), json.loads(sys.argv[2]))
        before = sorted(
            {"openvino", "openvino_telemetry", "urllib.request", "onnx"} & sys.modules.keys()
        )
        import openvino
        import openvino._pyopenvino as extension
        core = openvino.Core()
        print(json.dumps({
            "before": before,
            "devices": core.available_devices,
            "native": isinstance(plan.native, openvino.CompiledModel),
            "one extension": sys.modules["openvino._pyopenvino"] is extension,
            "instance": isinstance(core, extension.Core),
        }))
        """,
        tmp_path / "plan",
        json.dumps(detail),
    )
    assert loaded == {
        "before": [],
        "devices": ["CPU"],
        "native": True,
        "one extension": True,
        "instance": True,
    }


def test_the_extension_is_initialised_once_when_the_package_is_imported_meanwhile() -> None:
    for delay in ("0", "1", "2"):
        found = python(
            """
            import importlib, json, sys, threading
            from trivet.plans.backends.openvino_runtime import load_runtime
            together, found = threading.Barrier(2), {}
            def whole():
                together.wait()
                found["package"] = importlib.import_module("openvino")
            thread = threading.Thread(target=whole)
            sys.setswitchinterval(10.0 ** -(3 + int(sys.argv[1])))
            thread.start()
            together.wait()
            found["extension"] = load_runtime()
            thread.join()
            print(json.dumps(issubclass(found["package"].Core, found["extension"].Core)))
            """,
            delay,
        )
        assert found is True


def test_nothing_is_written_but_the_plan_and_nobody_is_called(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("home", "tmp", "cache", "work", "user_cache")}
    for place in places.values():
        place.mkdir()
    source = save(mlp(), tmp_path / "model" / "mlp.onnx")
    staging = tmp_path / "staging"
    staging.mkdir()
    connected = python(
        """
        import json, os, sys
        from pathlib import Path
        connected = []
        def audit(event, arguments):
            if event in ("socket.connect", "socket.getaddrinfo"):
                connected.append(event)
        sys.addaudithook(audit)
        work, source, staging, user_cache = map(Path, sys.argv[1:])
        os.chdir(work)
        from trivet.plans.backends.openvino import OpenVino
        from trivet.plans.model import GraphId
        graph = GraphId(format="onnx", structure=b"", weights=b"", metadata=b"", inputs=(),
                        outputs=(), operators=(), sources=())
        backend = OpenVino(options={"CACHE_DIR": str(user_cache)})
        backend.lint()
        built = backend.compile(source, graph, {"x": (4, 16)}, staging)
        backend.fallback(source, {})
        backend.load(staging, built.detail)
        print(json.dumps(connected))
        """,
        places["work"],
        source,
        staging,
        places["user_cache"],
        HOME=str(places["home"]),
        TMPDIR=str(places["tmp"]),
        XDG_CACHE_HOME=str(places["cache"]),
    )
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert connected == []
    assert written == {"model/mlp.onnx", f"staging/{PLAN_FILE}"}


def test_a_full_disk_is_an_error_of_the_system_though_openvino_ignores_it(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk; the kernel refuses the write alike."""
    source = save(mlp(width=256), tmp_path / "mlp.onnx")
    staging = tmp_path / "staging"
    staging.mkdir()
    outcome = python(
        """
        import json, resource, sys
        from pathlib import Path
        from trivet.plans.backends.openvino import OpenVino
        from trivet.plans.model import GraphId
        graph = GraphId(format="onnx", structure=b"", weights=b"", metadata=b"", inputs=(),
                        outputs=(), operators=(), sources=())
        backend = OpenVino()
        backend.warm_import()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            backend.compile(Path(sys.argv[1]), graph, {}, Path(sys.argv[2]))
            outcome = ["compiled", ""]
        except OSError as error:
            outcome = [type(error).__name__, str(backend.classify(error))]
        print(json.dumps(outcome))
        """,
        source,
        staging,
    )
    assert outcome == ["OSError", "transient"]


def test_exporting_holds_no_second_copy_of_the_weights(tmp_path: Path) -> None:
    width = 2048
    weights = {f"w{i}": np.full((width, width), 1e-3, np.float32) for i in range(4)}
    nodes = [
        helper.make_node(
            "MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}" if i < 3 else "y"]
        )
        for i in range(4)
    ]
    source = save(
        model(nodes, [tensor("x", [1, width])], [tensor("y", [1, width])], weights),
        tmp_path / "big.onnx",
    )
    grown = python(
        """
        import json, sys
        from pathlib import Path
        from trivet.plans.backends.openvino_plan import export_plan
        from trivet.plans.backends.openvino_runtime import load_runtime
        def peak():
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) * 1024
        compiled = load_runtime().Core().compile_model(sys.argv[1], "CPU", {})
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        size = export_plan(compiled, Path(sys.argv[2]))
        print(json.dumps([size, peak() - before]))
        """,
        source,
        tmp_path / PLAN_FILE,
    )
    size, more = grown
    assert size > 4 * width * width * 4
    assert more < 0.4 * size


def test_the_key_is_the_same_in_every_process(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.so").write_bytes(b"an operator library")
    code = """
        import json, os, sys
        os.chdir(sys.argv[1])
        from trivet.keys import Key
        from trivet.plans.backends.openvino import OpenVino
        from trivet.plans.host import HostFacts
        host = HostFacts(system="linux", machine="x86_64", instruction_set=(), libc="",
                         environment=dict(os.environ))
        options = {"PERF_COUNT": True, "ENABLE_CPU_PINNING": False}
        backend = OpenVino(threads=2, hint="latency", options=options, extensions=sys.argv[2:])
        print(json.dumps(Key("test/1", backend.key_fields(host)).digest.hex()))
    """
    digests = {
        python(code, tmp_path / name, f"{name}.so", PYTHONHASHSEED=seed, HOME=str(tmp_path / name))
        for name, seed in (("one", "1"), ("two", "2"))
    }
    assert len(digests) == 1


def test_a_plan_that_is_replaced_or_dropped_while_it_runs_keeps_running(tmp_path: Path) -> None:
    detail, expected = plan(tmp_path / "plan")
    executable = OpenVino().load(tmp_path / "plan", detail)
    ones = {"x": np.ones((4, 16), np.float32)}
    (tmp_path / "plan").rename(tmp_path / "old")
    plan(tmp_path / "plan")
    (tmp_path / "old" / PLAN_FILE).unlink()
    assert executable.run(ones)["y"].ravel().tolist() == expected


def test_plans_are_unmapped_when_they_are_dropped(tmp_path: Path) -> None:
    detail, expected = plan(tmp_path / "plan")
    left, last = python(
        """
        import json, sys
        from pathlib import Path
        import numpy as np
        from trivet.plans.backends.openvino import OpenVino
        backend, ones = OpenVino(), {"x": np.ones((4, 16), np.float32)}
        for _ in range(10):
            executable = backend.load(Path(sys.argv[1]), json.loads(sys.argv[2]))
            found = executable.run(ones)["y"].ravel().tolist()
        del executable
        maps = Path("/proc/self/maps").read_text()
        print(json.dumps([maps.count("plan.blob"), found]))
        """,
        tmp_path / "plan",
        json.dumps(detail),
    )
    assert (left, last) == (0, expected)
