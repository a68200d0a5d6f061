"""What this process has loaded that frameworks' caches depend on; a part of `trivet_exec_hook`."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

RUN = os.environ.get("TRIVET_EXEC_RUN", "")
_TRIVET = os.path.join(os.path.abspath(__file__).rpartition("/plans/")[0], "")
IN_NO_FILE = "(in no file)"  # stands for what was typed, or given on a command line
_own: dict[str, bool] = {}


class Loads:
    """Asks the loader how often it loaded a library into this process: see dl_iterate_phdr(3)."""

    def __init__(self) -> None:
        """Raises `ImportError` and `AttributeError` where it can't be asked."""
        import ctypes

        self._count = count = ctypes.c_ulonglong(0)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

        def first(about: int, size: int, _: int) -> int:
            # After an address, two pointers and a half word.
            count.value = ctypes.c_ulonglong.from_address(about + 32).value if size >= 48 else 0
            return 1  # no need to see the others

        self._first = kind(first)
        self._visit = ctypes.CDLL(None).dl_iterate_phdr

    def count(self) -> int:
        self._visit(self._first, None)
        return self._count.value


def mapped() -> Iterator[str]:
    """Files that are mapped as code."""
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        for line in maps:
            if line.split(None, 2)[1][2] == "x":
                path = "/" + line.rstrip("\n").partition("/")[2]
                nameless = len(path) == 1 or path.startswith(("/memfd:", "/dev/"))
                if not nameless and not _is_output(path):
                    yield path


def _is_output(path: str) -> bool:
    """Whether a framework compiled it, into our folder or its own."""
    return path.startswith(RUN) or "/torchinductor_" in path or "/.triton/cache/" in path


def operators_before(library: Any) -> set[str]:
    """Where operators may come from that a dispatcher was given before anybody noted from where.

    It tells who opened the library that an operator is in, not who implements it: where the program
    did, any of its modules may. Packages implement what they open themselves.

    Args:
        library: the module ``torch.library``.
    """
    from torch import _C

    opened: set[str] = set()
    for name in {each.rpartition("/")[0].replace("/", "::", 1) for each in list(library._impls)}:
        with contextlib.suppress(RuntimeError):
            opened.update(re.findall(r"registered at (.+):\d+", _C._dispatch_dump(name)))
    opened = {path for path in opened if _is_python(path)}
    found = {path if os.path.isfile(path) else IN_NO_FILE for path in opened}
    if not any(path == IN_NO_FILE or is_own(path) for path in found):
        return set()
    # Modules of PyTorch's that hold operators say that they are in a file, which is not there.
    loaded = [each for name, each in list(sys.modules.items()) if not name.startswith("torch.")]
    modules = [getattr(each, "__file__", None) for each in loaded]
    return {*found, *(os.path.abspath(each) for each in modules if each and is_own(each))}


def _is_python(path: str) -> bool:
    """Not C++, as it lay where it was built."""
    return path.endswith(".py") or path.startswith("<")


def is_own(path: str) -> bool:
    """Whether the program brings the file itself: no package installed it."""
    if path not in _own:  # asked again and again, before everything that is written
        _own[path] = _is_own(path)
    return _own[path]


def _is_own(path: str) -> bool:
    # Not by sysconfig, whose import costs more than the rest of this.
    packages = (each for each in sys.path if isinstance(each, str) and "-packages" in each)
    if path.startswith(("/usr/local/cuda", _TRIVET, *_installed(tuple(packages)))):
        return False
    if _is_output(path):
        return False
    return path not in (sys.executable, os.path.realpath(sys.executable))


@functools.cache
def _installed(packages: tuple[str, ...]) -> tuple[str, ...]:
    # Programs are brought to other places below /usr: to /usr/src/app, as images do, or /usr/local.
    places = ["/lib", "/lib32", "/lib64", os.path.join(sys.base_prefix, "lib")]
    places += ["/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec"]
    places += ["/usr/local/lib", "/usr/local/lib64", "/usr/local/nvidia", *packages]
    return tuple(os.path.join(each, "") for each in places)
