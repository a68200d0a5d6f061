"""A plan file says what it says, or where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from trivet.warm.lines import line_of
from trivet.warm.planfile import PlanFileError, read_plan_file

GOOD = "[[model]]\npath = 'a.onnx'\n"


def read(content: str, folder: Path) -> list[str]:
    file = folder / "plan.toml"
    file.write_text(content)
    return [each.name for each in read_plan_file(file)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("relase = '7'\n" + GOOD, r"line 1, relase: there is no 'relase'(.|\n)*mean 'release'\?"),
        (GOOD + "shape = 'x=1'", r"line 3, model\[0\]\.shape(.|\n)*did you mean 'shapes'\?"),
        (GOOD + GOOD + "\nzzz = 1", r"line 6, model\[1\]\.zzz(.|\n)*known are backend, check_pad"),
        (GOOD + "[model.reference]\noutput = 'a'", r"line 4, model\[0\]\.reference\.output"),
        (GOOD + "backend = 'onnxruntme'", r"line 3(.|\n)*did you mean 'onnxruntime'\?"),
        ("[[model]]\nbackend = 'jax'", r"line 1, model\[0\]: (.|\n)*`path`"),
        (GOOD + "threads = 'two'", r"line 3, model\[0\]\.threads: Expected `int"),
        (GOOD + "timeout = 0", r"line 3, model\[0\]\.timeout"),
        (GOOD + "reference = {outputs = 'a', tolerance = inf}", r"reference\.tolerance"),
        (GOOD + "shapes = 'x=N{2,'", r"line 1, model\[0\]: .*shape rule"),
        (GOOD + "options = {level = 'most'}", r"line 1, model\[0\]: .*level"),
        (GOOD + "cut = {y = {first = 'N'}}", r"line 1, model\[0\]: cut\.y names an axis"),
        (GOOD + GOOD, r"line 1, model\[0\]: several models are called a\.onnx on onnxruntime"),
        ("model = 3", r"model: Expected `array`"),
        ("", r"plan\.toml, model: there is no model(.|\n)*\[\[model\]\]"),
        ("release = '7'", r"there is no model, so nothing would be got ready"),
        ("release = '7'\nmodel = []", r"line 2, model: there is no model"),
        ("[model]\npath = 'a.onnx'", r"line 1, model: Expected `array`(.|\n)*two brackets"),
        ("[[models]]\npath = 'a.onnx'", r"there is no 'models' here(.|\n)*mean 'model'\?"),
        (GOOD + "path = 'b.onnx'", r"can't be read: .*[Oo]verwrite"),
        (GOOD + "name = 'a'\n" + GOOD + "name = 'a'", r"several models are called a"),
        (GOOD + "required = 'no'", r"line 3, model\[0\]\.required: Expected `bool`"),
        (GOOD + "nondeterministc = true", r"line 3(.|\n)*did you mean 'nondeterministic'\?"),
        (GOOD + "shapes = 3", r"line 3, model\[0\]\.shapes: Expected `(str|array)"),
        ("[[model]]\npath = 3", r"line 2, model\[0\]\.path: Expected `str`"),
        ("[[model]", r"can't be read"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(content: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match=says):
        read(content, tmp_path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match=r"none\.toml can't be read: .*No such file"):
        read_plan_file(tmp_path / "none.toml")


def test_names_are_the_paths_unless_others_are_given(tmp_path: Path) -> None:
    other = "[[model]]\npath = 'a.onnx'\nbackend = 'openvino'\n"
    assert read(GOOD, tmp_path) == ["a.onnx"]
    assert read(GOOD + other, tmp_path) == ["a.onnx on onnxruntime", "a.onnx on openvino"]
    assert read(GOOD + "name = 'b'\n" + other, tmp_path) == ["b", "a.onnx"]


TEXT = """\
release = "7"  # first

[[model]]
path = "a"
cut = { y = { 0 = "N" } }

[[model]]
"path" = "b"
options.level = 1
[model.pad]
x = 0
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("release",), 1),
        (("model", 0), 3),
        (("model", 0, "path"), 4),
        (("model", 0, "cut", "y", "0"), 5),
        (("model", 1, "path"), 8),
        (("model", 1, "options", "level"), 9),
        (("model", 1, "pad", "x"), 11),
        (("model", 1, "missing"), 7),
        (("nothing",), None),
    ],
)
def test_lines_are_found(place: tuple[str | int, ...], line: int | None) -> None:
    assert line_of(TEXT, place) == line
