"""Extensions that are compiled when the program runs, under ``trivet exec``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.guarded import run

PROGRAM = """
import ctypes, sys
from torch.utils.cpp_extension import load
path = load("toy", ["toy.cpp"], extra_include_paths=["first", "second"], is_python_module=False)
print(ctypes.CDLL(path).answer())
"""
FILES = {
    "toy.cpp": '#include "answer.h"\nextern "C" int answer() { return ANSWER + 0; }\n',
    "first/none.h": "",
    "second/answer.h": "#include <number.h>\n#define ANSWER NUMBER\n",
    "second/number.h": "#define NUMBER 1\n",
}
EDITS = {
    "the source": ("toy.cpp", FILES["toy.cpp"].replace("0", "1")),
    "a header": ("second/number.h", "#define NUMBER 2\n"),
    "a header before another": ("first/number.h", "#define NUMBER 2\n"),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("edit", EDITS)
def test_an_extension_is_compiled_again_when_its_files_are_others(
    edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an image layer or an archive are older than what was compiled of the ones before."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for name, text in FILES.items():
        put(Path(name), text)
    said = [run(tmp_path / "c", program).out for _ in range(2)]
    name, text = EDITS[edit]
    put(Path(name), text)
    said += [run(tmp_path / "c", program).out for _ in range(2)]
    assert said == ["1\n", "1\n", "2\n", "2\n"]


def put(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_000_000_000, 1_000_000_000))
