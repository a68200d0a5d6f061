"""What counts in an exported PyTorch program, read without PyTorch."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.torch_programs import WIDTH, Dense, convolutions, dense, save

from trivet.errors import ModelError
from trivet.plans.graph import identify
from trivet.plans.model import GraphId, TensorInfo

_SOURCE = """
import torch
{padding}
class Model(torch.nn.Module):
    def forward(self, x):
        {local} = torch.relu(x) * {factor}{extra}
        return {local} + torch.tensor({table})
"""


def written(folder: Path, **changes: Any) -> GraphId:
    """Identity of a program whose source is a file in ``folder``."""
    values = {
        "padding": "",
        "local": "y",
        "factor": 2.0,
        "extra": "",
        "table": [1.0, 2.0],
        **changes,
    }
    folder.mkdir()
    source = folder / "source.py"
    source.write_text(_SOURCE.format(**values))
    module: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), module)
    return identify(save(module["Model"](), folder / "model.pt2", torch.ones(3, 2)))


def counts(graph: GraphId) -> tuple[bytes, bytes]:
    return graph.structure, graph.weights


def test_where_the_source_lies_and_what_its_locals_are_called_do_not_count(tmp_path: Path) -> None:
    one = written(tmp_path / "a")
    other = written(tmp_path / "b", padding="# moved\n\n\n", local="renamed")
    assert counts(one) == counts(other)
    assert one.metadata != other.metadata


@pytest.mark.parametrize("change", [{"factor": 3.0}, {"table": [1.0, 3.0]}, {"extra": " + x"}])
def test_what_the_code_computes_counts(tmp_path: Path, change: dict[str, Any]) -> None:
    assert written(tmp_path / "a").structure != written(tmp_path / "b", **change).structure


def test_other_weights_are_another_content_of_the_same_structure(tmp_path: Path) -> None:
    one, other = identify(dense(tmp_path / "a.pt2")), identify(dense(tmp_path / "b.pt2", seed=1))
    assert one.structure == other.structure
    assert one.weights != other.weights
    assert one.inputs == (TensorInfo("x", "float32", (one.inputs[0].shape[0], WIDTH)),)  # type: ignore[index]
    assert one.outputs[0].name == "y"


def _untied(path: Path) -> Path:
    module = Dense()
    module.tied.weight = torch.nn.Parameter(module.first.weight.detach().clone())
    return _saved(module, path)


def _shifted(path: Path) -> Path:
    module = Dense()
    module.shift += 1.0
    return _saved(module, path)


def _halved(path: Path) -> Path:
    return _saved(Dense(), path, torch.randn(2, WIDTH))


def _unbounded(path: Path) -> Path:
    return _saved(Dense(), path, low=1, high=32)


def _saved(
    module: torch.nn.Module, path: Path, x: torch.Tensor | None = None, low: int = 1, high: int = 64
) -> Path:
    dim = torch.export.Dim("N", min=low, max=high)
    x = torch.randn(4, WIDTH) if x is None else x
    return save(module, path, x, dynamic_shapes=({0: dim},))


@pytest.mark.parametrize("make", [_untied, _shifted, _halved, _unbounded])
def test_shared_memory_constants_hints_and_bounds_are_structure(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    assert (
        identify(dense(tmp_path / "a.pt2")).structure
        != identify(make(tmp_path / "b.pt2")).structure
    )


class _Nested(torch.nn.Module):
    def forward(self, x: torch.Tensor, pair: list[torch.Tensor]) -> Any:
        return (x + pair[0], {"a": pair[1], "b": (x * 2,)})


def test_outputs_go_by_their_place_in_what_is_returned(tmp_path: Path) -> None:
    x = torch.ones(2)
    graph = identify(save(_Nested(), tmp_path / "a.pt2", x, [x + 1, x + 2]))
    assert [each.name for each in graph.inputs] == ["x", "pair_0", "pair_1"]
    assert [each.name for each in graph.outputs] == ["output_0", "output_1.a", "output_1.b.0"]
    alone = identify(save(torch.nn.ReLU(), tmp_path / "b.pt2", x))
    assert [each.name for each in alone.outputs] == ["output"]


def test_two_processes_and_hash_seeds_agree_and_import_no_torch(tmp_path: Path) -> None:
    model = dense(tmp_path / "a.pt2")
    program = (
        "import sys, pathlib; from trivet.plans.graph import identify\n"
        f"g = identify(pathlib.Path({str(model)!r}))\n"
        "assert not {'torch', 'pickle'} & sys.modules.keys()\n"
        "print(g.structure.hex(), g.weights.hex(), g.metadata.hex())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    mine = identify(model)
    assert answers == {f"{mine.structure.hex()} {mine.weights.hex()} {mine.metadata.hex()}\n"}


def rewritten(
    source: Path, target: Path, change: Callable[[dict[str, bytes]], None], **zip_: Any
) -> Path:
    """The archive with other records."""
    with zipfile.ZipFile(source) as old:
        records = {each: old.read(each) for each in old.namelist()}
    change(records)
    with zipfile.ZipFile(target, "w", **zip_) as new:
        for name, content in records.items():
            new.writestr(name, content)
    return target


def _root(records: dict[str, bytes]) -> str:
    return next(iter(records)).partition("/")[0]


def test_a_copy_by_another_zip_program_is_the_same_program(tmp_path: Path) -> None:
    model = dense(tmp_path / "a.pt2")
    copy = rewritten(model, tmp_path / "b.pt2", lambda records: None)
    assert counts(identify(model)) == counts(identify(copy))


def test_a_record_that_nobody_knows_counts(tmp_path: Path) -> None:
    model = dense(tmp_path / "a.pt2")

    def add(records: dict[str, bytes]) -> None:
        records[f"{_root(records)}/data/of_tomorrow"] = b"1"

    assert (
        identify(model).structure != identify(rewritten(model, tmp_path / "b.pt2", add)).structure
    )


def test_what_is_no_single_program_is_refused(tmp_path: Path) -> None:
    model = dense(tmp_path / "a.pt2")

    def second(records: dict[str, bytes]) -> None:
        root = _root(records)
        records[f"{root}/models/other.json"] = records[f"{root}/models/model.json"]

    def none(records: dict[str, bytes]) -> None:
        del records[f"{_root(records)}/models/model.json"]

    def pickled(records: dict[str, bytes]) -> None:
        records[f"{_root(records)}/data/weights/model.pt"] = b""

    def stranger(records: dict[str, bytes]) -> None:
        records["elsewhere/file"] = b""

    def number(records: dict[str, bytes]) -> None:
        name = f"{_root(records)}/models/model.json"
        document = json.loads(records[name])
        spec = document["graph_module"]["signature"]["output_specs"][0]
        spec["user_output"]["arg"] = {"as_int": 3}
        records[name] = json.dumps(document).encode()

    for n, (change, text) in enumerate(
        [
            (second, "2 exported programs"),
            (none, "0 exported programs"),
            (pickled, "old, pickled form"),
            (stranger, "malformed"),
            (number, "output 'y' is no tensor but int"),
        ]
    ):
        with pytest.raises(ModelError, match=text):
            identify(rewritten(model, tmp_path / f"{n}.pt2", change))
    with pytest.raises(ModelError, match="compressed"):
        identify(
            rewritten(model, tmp_path / "z.pt2", lambda r: None, compression=zipfile.ZIP_DEFLATED)
        )


def test_a_name_that_stands_twice_in_the_archive_is_refused(tmp_path: Path) -> None:
    model = shutil.copy(dense(tmp_path / "a.pt2"), tmp_path / "b.pt2")
    with zipfile.ZipFile(model, "a") as archive:
        name = archive.namelist()[0]
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(name, b"other weights")
    with pytest.raises(ModelError, match="malformed"):
        identify(model)


def test_damage_is_another_identity_or_an_error_of_ours(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "a.pt2")
    whole = model.read_bytes()
    before = identify(model)
    chance = random.Random(7)
    broken = tmp_path / "b.pt2"
    unseen = 0
    for _ in range(150):
        content = bytearray(whole)
        if chance.random() < 0.2:
            del content[chance.randrange(len(content)) :]
        else:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        broken.write_bytes(content)
        try:
            after = identify(broken)
        except ModelError:
            continue
        unseen += (after.structure, after.weights, after.metadata) == (
            before.structure,
            before.weights,
            before.metadata,
        )
    # Padding between records, times and checksums are no part of anything.
    assert unseen < 40
