"""Libraries that others bring with them, under ``trivet exec``."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.toys import COMPILE, GUARD, python, start

# What is needed by the library that the program names; no event tells of it.
CODE = "import ctypes; ctypes.CDLL('OUTER'); import encodings.idna" + COMPILE


def build(path: Path, source: str, *options: object) -> None:
    path.parent.mkdir(exist_ok=True)
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", path, *map(str, options)],
        input=source,
        text=True,
        check=True,
    )


def test_what_a_library_needs_counts_also_when_another_comes_to_stand_before_it(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    name = "-Wl,-soname,libinner.so"
    build(second / "libinner.so", "int inner() { return 1; }", name)
    outer = tmp_path / "outer.so"
    needs = ("-x", "none", second / "libinner.so")
    build(outer, "int inner(); int outer() { return inner(); }", *needs)
    code = CODE.replace("OUTER", str(outer))
    said = []
    for number in range(4):
        if number == 2:
            build(first / "libinner.so", "int inner() { return 2; }", name)
        process = start(
            tmp_path / "c",
            [*python(code), "a"],
            *GUARD,
            more={"LD_LIBRARY_PATH": f"{first}:{second}"},
        )
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        said.append(out.split()[0])
    assert said == ["miss", "hit", "miss", "hit"]
