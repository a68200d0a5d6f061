from __future__ import annotations

from pathlib import Path

import pytest
import typer

from trivet.cache import Cache
from trivet.cli.options import parse_age, parse_pairs
from trivet.cli.planfile import read_plan_file
from trivet.errors import BackendError
from trivet.keys import Key
from trivet.plans.backends.named import BackendName, make_backend
from trivet.plans.plans import Plans

PLAN = """
release = "2026.11"
[[model]]
path = "net.onnx"
shapes = "x=N{1,8}x16"
pad = {x = 0}
cut = {y = {0 = "N"}}
threads = 2
[[model]]
path = "sub/other.xml"
required = false
"""


def key(model: Path, *options: str) -> Key:
    backend = make_backend(model, None, parse_pairs(options, "--option"))
    ((_, found),) = Plans(Cache(None), backend).keys(model)
    return found


def test_the_backend_follows_from_the_suffix() -> None:
    assert make_backend(Path("a.onnx"), None, {}).name == "onnxruntime"
    assert make_backend(Path("a.xml"), None, {}).name == "openvino"
    assert make_backend(Path("a.jaxexport"), None, {}).name == "jax"
    assert make_backend(Path("a.onnx"), BackendName.OPENVINO, {}).name == "openvino"


def test_an_option_with_the_name_of_a_parameter_sets_that(model: Path) -> None:
    assert key(model, "level=basic") != key(model)
    fused = ("ConvAddActivationFusion", "MatMulAddFusion")
    assert key(model, f"disabled_optimizers={','.join(fused)}")["disabled_optimizers"] == fused


def test_other_options_reach_the_framework(model: Path) -> None:
    changed = key(model, "session.disable_prepacking=1").diff(key(model))
    assert [each.mine for each in changed] == ["1"]


def test_an_option_that_can_not_be_is_an_error_of_the_backend() -> None:
    with pytest.raises(BackendError, match="inter_op_threads"):
        make_backend(Path("a.onnx"), None, {"inter_op_threads": "many"})


def test_what_a_backend_does_not_have_is_not_ignored() -> None:
    with pytest.raises(BackendError, match="iree has no option threads"):
        make_backend(Path("a.onnx"), BackendName.IREE, {"threads": "2"})
    with pytest.raises(BackendError, match=r"iree has no option level(.|\n)*cpu, device, flags"):
        make_backend(Path("a.onnx"), BackendName.IREE, {"level": "all"})


def test_pairs_and_ages_that_are_none_are_wrong_usage() -> None:
    assert parse_pairs(["a=b=c"], "--option") == {"a": "b=c"}
    assert parse_age("1.5h", "--since") == 5400
    for wrong in ("a", "=b"):
        with pytest.raises(typer.BadParameter):
            parse_pairs([wrong], "--option")
    for wrong in ("7", "d", "7y", "-1d"):
        with pytest.raises(typer.BadParameter):
            parse_age(wrong, "--since")


def test_paths_of_a_plan_file_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    first, second = read_plan_file(file)
    assert (first.path, second.path) == (tmp_path / "net.onnx", tmp_path / "sub/other.xml")
    assert (first.required, second.required) == (True, False)
    assert first.release == second.release == "2026.11"
    assert second.backend.name == "openvino"
    assert dict(first.shapes.cut["y"]) == {0: "N"}


@pytest.mark.parametrize(
    "content",
    [
        "[[model]]\npath = 'a.onnx'\nshape = 'x=1'",  # a misspelt name must not be ignored
        "[[plan]]\nmodel = 'a.onnx'",
        "[[model]]\npath = 'a.onnx'\nbackend = 'tvm'",
        "[[model]]\npath = 'a.onnx'\ncut = {y = {first = 'N'}}",
        "not toml",
    ],
)
def test_a_plan_file_that_says_something_else_is_wrong_usage(content: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(content)
    with pytest.raises(typer.BadParameter):
        read_plan_file(file)
