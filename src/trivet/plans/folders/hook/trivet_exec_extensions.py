"""What PyTorch compiles of a program's own files when it runs; a part of `trivet_exec_hook`.

Whether to compile again is decided by time stamps, and restored files are new: an older source that
was put in the place of another would go unseen.
"""

from __future__ import annotations

import os
import re

from trivet_exec_loaded import is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_SEARCHED = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH")


def with_headers(sources: Iterable[str], folders: Iterable[str]) -> set[str]:
    """The sources, and what these include that the program brings itself.

    ``folders`` are searched before those that the environment names.
    """
    searched = [*folders, *(each for name in _SEARCHED for each in _folders(name))]
    found: set[str] = set()
    rest = [os.path.abspath(each) for each in sources]
    while rest:
        path = rest.pop()
        if path in found or not is_own(path):
            continue
        found.add(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            names = _INCLUDE.findall(file.read())
        for name in names:
            places = [os.path.join(each, name) for each in (os.path.dirname(path), *searched)]
            rest += [os.path.abspath(each) for each in filter(os.path.isfile, places)][:1]
    return found


def _folders(variable: str) -> list[str]:
    return [each for each in os.environ.get(variable, "").split(os.pathsep) if each]
