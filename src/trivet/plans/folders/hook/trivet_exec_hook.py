"""In a program under ``trivet exec``: gets each framework the folder that belongs to this process.

The command that runs the program is asked, at a socket in ``TRIVET_EXEC_RUN``, when a framework is
about to be imported, and told what this process is: its Python, its environment as it is now, and
what implements operators in it. It answers with a private folder that fits. When something of that
changes later, it is asked again. Where nobody answers, the framework keeps the cache that it would
have had.

What this process has loaded is written down, in one file for each process, before anything gets
into a private folder from here. So whatever is in a folder, and however a process ended, what it
was made with is known.

It stands alone, and nothing that goes wrong in it may reach the program.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import json
import os
import socket
import sys
import threading
import time

import trivet_exec_torch
from trivet_exec_loaded import RUN, Loads, is_own, mapped, torch_counters, vllm_counters
from trivet_exec_operators import look_anew, operator_files, unknown
from trivet_exec_started import doubt_of, watch_forks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_FOLDERS = os.path.join(RUN, "folders", "")
_ARGUMENTS = "TRIVET_EXEC_ARGUMENTS"
_PATIENCE = 3600.0  # seconds; whoever fills the folder may be waited for
_NEVER = (-1, 0, 0.0)
_FRESH = 0.2  # seconds that a report may lag behind what was loaded past the loader
_CLOCK = 20_000_000  # nanoseconds; file systems stamp by a clock that lags behind


def _name() -> str:
    """Of this process and no other; numbers come again, and are others in a container."""
    return f"{os.getpid()}-{os.urandom(6).hex()}"


class _State:
    """What is known in this process. A child that was forked begins with its own counters."""

    def __init__(self) -> None:
        self.name = _name()
        self.lock = threading.RLock()
        self.inside = threading.local()
        self.arguments: list[str] = []
        self.modules: set[str] = set()  # for which folders were asked
        self.given: dict[str, dict[str, Any]] = {}  # framework to the folder it has now
        self.left: dict[str, list[str]] = {}  # folder to what was loaded while it was in use
        self.used: dict[str, set[str]] = {}  # folder to what was own when something got into it
        self.is_blind = False  # something that tells what is loaded could not be watched
        self.doubt = ""
        self.jax: dict[str, float] = {}
        self.written = ""
        self.written_at = _NEVER
        self.broken = False
        self.holds: int | None = None
        self.loads: Loads | None = None
        self.undo: list[Any] = []  # what is called when the guard is over


_state = _State()


# -- asking ----------------------------------------------------------------------------------------


def enter(module: str) -> None:
    """Before ``module`` is imported: have the folders of what it leads to."""
    with _state.lock:
        if not _state.modules:
            _hold()
            _state.arguments = _arguments()
            sys.addaudithook(_audit)
            os.register_at_fork(after_in_child=_forked)
            _state.undo.append(watch_forks(_spawn))
            atexit.register(report)
        _state.modules.add(module)
        _ask(module)


def leave(jax_before: str | None) -> None:
    """The guard is over while the process goes on: look at nothing any more."""
    with _state.lock:
        if "jax" in _state.given:
            _lead_jax(jax_before)
        while _state.undo:
            _state.undo.pop()()
        _state.given.clear()
        _state.modules.clear()
        os.environ.pop(_ARGUMENTS, None)
        if _state.holds is not None:
            os.close(_state.holds)
            _state.holds = None


def leave_alone() -> None:
    """What this thread does is the guard's own work, for the rest of its life."""
    _state.inside.it = True


def _hold() -> None:
    """The folder of the run stays while a process holds this."""
    _state.holds = os.open(os.path.join(RUN, "lock"), os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(_state.holds, fcntl.LOCK_SH)


def _arguments() -> list[str]:
    """Those of the program; a worker, or a helper that is given none, has those of its parent."""
    process = sys.modules.get("multiprocessing.process")
    given = [each for each in sys.argv[1:] if isinstance(each, str)]
    if not given or (process is not None and process.parent_process() is not None):
        with contextlib.suppress(OSError, KeyError), open(os.environ[_ARGUMENTS]) as file:
            inherited: list[str] = json.load(file)
            return inherited
        return []
    # In a file: a variable has room for 128 KiB, and one that is longer starts no program.
    path = os.path.join(RUN, f"{_state.name}.arguments")
    with open(path, "w") as file:
        json.dump(given, file)
    os.environ[_ARGUMENTS] = path
    return given


def _ask(
    module: str,
    environment: dict[str, str] | None = None,
    loads: str = "",
    *,
    exact: bool = False,
) -> None:
    own = sorted({*_own_files(), *([loads] if loads else [])})
    since = time.time_ns() - _CLOCK
    _state.inside.it = True
    try:
        answer = request(
            {
                "ask": "folders",
                "process": _state.name,
                "module": module,
                "python": {
                    "executable": sys.executable,
                    "version": sys.version,
                    "tag": sys.implementation.cache_tag,
                    "path": [each for each in sys.path if isinstance(each, str)],
                    "prefix": sys.prefix,
                    "base": sys.base_prefix,
                },
                "environment": dict(os.environ) if environment is None else environment,
                "own": own,
                "exact": exact,
                "arguments": _state.arguments,
            }
        )
        for each in answer.get("folders", ()):
            _use({**each, "since": since})
    finally:
        _state.inside.it = False
    if _state.is_blind:
        _go_without_all()
    report()


def _ask_again(
    environment: dict[str, str] | None = None, loads: str = "", *, exact: bool = False
) -> None:
    """What is in use does not fit any more; with ``exact``, by what this process brought itself."""
    before = list(_state.given.values())
    with contextlib.suppress(Exception):
        for module in sorted(_state.modules):
            _ask(module, environment, loads, exact=exact)
    for given in before:
        if _state.given.get(given["framework"]) is given:
            _go_without(given)


def _go_without(given: dict[str, Any]) -> None:
    """No other folder is to be had: an empty one, of which nothing is kept."""
    name = f"{given['framework']}.{_name()}"
    variables = {
        variable: path.replace(_FOLDERS + given["name"], _FOLDERS + name, 1)
        for variable, path in given["variables"].items()
        if os.environ.get(variable) == path  # else the program has a place of its own
    }
    with contextlib.suppress(OSError):
        for path in variables.values():
            os.makedirs(path, exist_ok=True)
    own = sorted(_of(given, _own_files()))
    since = time.time_ns() - _CLOCK
    more = {"name": name, "variables": variables, "settings": {}, "own": own, "since": since}
    _use({**given, **more, "alone": True, "restored": "empty"})
    report()


def _go_without_all() -> None:
    for given in [each for each in _state.given.values() if "alone" not in each]:
        _go_without(given)


def request(asked: dict[str, Any]) -> dict[str, Any]:
    """What the command answers. Raises `OSError` and `ValueError`."""
    # Through the folder's descriptor: a socket's path may have 107 bytes.
    folder = os.open(RUN, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(f"/proc/self/fd/{folder}/socket")
            connection.sendall(json.dumps(asked).encode() + b"\n")
            with connection.makefile("rb") as told:
                answer: dict[str, Any] = json.loads(told.readline() or b"{}")
                return answer
    finally:
        os.close(folder)


def _use(given: dict[str, Any]) -> None:
    framework = given["framework"]
    before = _state.given.get(framework)
    if before is not None and before["name"] != given["name"]:
        _state.left[before["name"]] = before["loaded"]
    given["loaded"] = []
    _state.given[framework] = given
    os.environ.update(given["variables"])
    for name, value in given["settings"].items():
        os.environ.setdefault(name, value)
    if framework == "jax" and before is not None and given["variables"]:
        _lead_jax(next(iter(given["variables"].values())))


def _lead_jax(folder: str | None) -> None:
    """JAX looked at the variable when it was imported."""
    jax: Any = sys.modules.get("jax")
    if hasattr(jax, "config"):
        from jax._src import compilation_cache

        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()


# -- writing down ----------------------------------------------------------------------------------


def report(*_: object) -> None:
    """Write down what is known now, if it is more than before."""
    _write_down(())


def _write_down(used: Iterable[str]) -> None:
    """Before something gets into the folders ``used``."""
    with _state.lock:
        if _state.broken or not _state.given or getattr(_state.inside, "it", False):
            return
        _state.inside.it = True
        path = os.path.join(RUN, "reports", f"{_state.name}.json")
        try:
            # Before: what comes meanwhile is more.
            now = (_loads_so_far(), len(sys.modules), time.monotonic())
            text = json.dumps(_report(used))
            if text != _state.written:
                with open(path + ".part", "w") as file:
                    file.write(text)
                os.replace(path + ".part", path)
                _state.written = text
            _state.written_at = now
        except BaseException as error:
            # A name needs no room and no descriptor. An interpreter at its end may lack anything;
            # then nothing can be loaded any more either.
            _state.broken = True
            if not _ending():
                _mark(path)
                if not isinstance(error, Exception):
                    raise  # of the program's own signal handlers
        finally:
            _state.inside.it = False


def _is_more() -> bool:
    """Whether something may have been loaded since the last report.

    Asked before each file that is written, of which there may be hundreds, so it must cost little.
    Operators need not be looked for: before anything is compiled with them there is a report.
    """
    loads, modules, then = _state.written_at
    return (
        loads < 0
        or time.monotonic() - then > _FRESH
        or len(sys.modules) != modules
        or _loads_so_far() != loads
    )


def _loads_so_far() -> int:
    if _state.loads is None:
        try:
            _state.loads = Loads()
        except (ImportError, AttributeError, OSError):
            return -1
    loads: int = _state.loads.count()
    return loads


def _mark(path: str) -> None:
    try:
        os.replace(path, path + ".broken")
    except OSError:
        with contextlib.suppress(OSError):  # of a child that never wrote one
            os.mkdir(path + ".broken")


def _ending() -> bool:
    return sys.is_finalizing() or not sys.modules


def _report(used: Iterable[str]) -> dict[str, Any]:
    own = _own_files()
    installed = sorted({*mapped()} - own)
    for name in used:
        _state.used.setdefault(name, set()).update(own)
        _state.left.setdefault(name, installed)
    for each in _state.given.values():
        each["loaded"] = installed
    folders = {**_state.left, **dict.fromkeys(_in_use(), installed)}
    return {
        "folders": {
            name: sorted({*loaded, *_state.used.get(name, ())}) for name, loaded in folders.items()
        },
        "now": sorted(each["name"] for each in _state.given.values()),
        "own": sorted(own),
        "doubt": _state.doubt or unknown(),
        "torch": torch_counters(),
        "vllm": vllm_counters(),
        "jax": _state.jax,
    }


def _own_files() -> set[str]:
    """Those that a folder has to be filled with exactly: what defines operators, whoever brought
    it, since it may do so for operators of others; and what the program brings of the rest."""
    return {*filter(is_own, mapped()), *operator_files()}


def _in_use() -> list[str]:
    return [each["name"] for each in _state.given.values()]


# -- watching --------------------------------------------------------------------------------------


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's own events; see https://docs.python.org/3/library/audit_events.html."""
    watch, inside = _EVENTS.get(event), _state.inside
    has_loaded = getattr(inside, "has_loaded", False)
    if (watch is None and not has_loaded) or getattr(inside, "it", False):
        return
    with contextlib.suppress(Exception):
        if has_loaded:
            inside.has_loaded = False
            _fit()
        if watch is not None:
            watch(*arguments)


def _file(path: object, *_: object) -> None:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(_FOLDERS):
        folder = os.fspath(path)[len(_FOLDERS) :].partition(os.sep)[0]
        if folder not in _state.used or _is_more():
            _write_down([folder])


def _open(path: object, _: object = None, flags: object = 0) -> None:
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
        _file(path)


def _renamed(source: object, target: object, *_: object) -> None:
    _file(target)


def _load(path: object, *_: object) -> None:
    """A library that no package installed is about to be loaded."""
    if not isinstance(path, str):
        return
    found = path if os.sep in path else _searched(path)
    if found and is_own(found := os.path.realpath(found)):
        _moved_by(found)
        _state.inside.has_loaded = True  # it may have brought others


def _searched(name: str) -> str:
    """The library of this name that the program brings; empty where the system has it."""
    search = os.environ.get("LD_LIBRARY_PATH", "")
    paths = [os.path.join(folder, name) for folder in search.split(":")] if search else []
    return next(filter(os.path.isfile, paths), "")


def _import(_: object, path: object, *__: object) -> None:
    _load(path)


def _moved_by(path: str) -> None:
    """Have folders that know of the file, where those in use were filled without it, or with what
    it was before it was built anew."""
    with _state.lock:
        if not all(_knows(each, path) for each in _state.given.values()):
            _ask_again(loads=path, exact=True)


def _fit() -> None:
    """Have folders that were filled with just what is loaded now, before anything is looked up."""
    if not _state.given:
        return
    with contextlib.suppress(Exception), _state.lock:
        own = _own_files()
        if unknown():
            _go_without_all()
        elif any(
            _of(each, own) != {*each["own"]} or not all(_knows(each, path) for path in own)
            for each in _state.given.values()
        ):
            _ask_again(exact=True)
    _write_down(_in_use())


def _of(given: dict[str, Any], own: set[str]) -> set[str]:
    """Those of the files that are not in the folder's key with the packages they are in."""
    return {path for path in own if not path.startswith(tuple(given["packages"]))}


def _knows(given: dict[str, Any], path: str) -> bool:
    """Whether the folder was filled with the file as it is now."""
    if not _of(given, {path}):
        return True
    try:
        changed = os.stat(path).st_ctime_ns
    except OSError:
        changed = 0
    return path in given["own"] and changed <= given["since"]


def _putenv(name: bytes, value: bytes | None = None) -> None:
    named = os.fsdecode(name)
    said = None if value is None else os.fsdecode(value)
    with _state.lock:
        if any(_matters(each, named, said) for each in _state.given.values()):
            environment = {**os.environ, named: said or ""}
            if said is None:
                del environment[named]
            _ask_again(environment)


def _matters(given: dict[str, Any], name: str, value: str | None) -> bool:
    """Whether the framework reads the variable, and its folder was made for another value."""
    rules = given["rules"]
    if not (name.startswith(tuple(rules["prefixes"])) or name in rules["names"]):
        return False
    for neutral in rules["neutral"]:
        if name == neutral or (neutral.endswith("*") and name.startswith(neutral[:-1])):
            return False
    if value is not None and value == given["settings"].get(name):
        return False
    if not value and name in rules["empty_is_unset"]:
        value = None
    return bool(given["environment"].get(name) != value)


def _spawn(program: object, arguments: object = (), *more: object) -> None:
    environment: Any = more[-1] if more else None
    if not isinstance(environment, dict):
        environment = os.environ
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    if any(_FOLDERS in value for value in given.values()):
        words = arguments if isinstance(arguments, (list, tuple)) else (arguments,)
        texts = [os.fsdecode(each) for each in words if isinstance(each, (str, bytes, os.PathLike))]
        _state.doubt = doubt_of(texts, given) or _state.doubt
    _write_down(_in_use())  # with the doubt: nothing may come after it


def _system(command: object) -> None:
    _spawn("sh", ["sh", "-c", command])


_EVENTS: dict[str, Any] = {
    "open": _open,
    "os.mkdir": _file,
    "os.rename": _renamed,
    "os.link": _renamed,
    "os.symlink": _renamed,
    "import": _import,
    "ctypes.dlopen": _load,
    "os.putenv": _putenv,
    "os.unsetenv": _putenv,
    "subprocess.Popen": _spawn,
    "os.posix_spawn": _spawn,
    "os.exec": _spawn,
    "os.system": _system,
}


def watch(function: str, module: Any) -> None:
    """Call one of the functions below. Where it fails, nothing that was restored may be used."""
    try:
        globals()[function](module)
    except Exception as error:  # noqa: BLE001
        with _state.lock:
            _state.is_blind = True
            _state.doubt = f"{module.__name__} can't be watched: {error}"
            _go_without_all()


def watch_compiling(module: Any) -> None:
    """``torch._dynamo.callback``."""
    handler = module.callback_handler
    # Not among its lists of callbacks, which programs clear by torch._dynamo.reset().
    start, end = handler.run_start_callbacks, handler.run_end_callbacks

    def run_start_callbacks(*arguments: Any) -> None:
        look_anew()
        _fit()
        start(*arguments)

    def run_end_callbacks(*arguments: Any) -> None:
        end(*arguments)
        report()

    handler.run_start_callbacks, handler.run_end_callbacks = run_start_callbacks, run_end_callbacks


def watch_operators(module: Any) -> None:
    """``torch.library``: what is given to a dispatcher is in no registry of Python."""
    doubt = trivet_exec_torch.note_operators(module)
    _state.doubt = _state.doubt or doubt


def watch_backends(module: Any) -> None:
    """``torch._dynamo.backends.registry``: a program's own backend may bring decompositions."""
    trivet_exec_torch.note_backends(module)


def watch_headers(module: Any) -> None:
    """``torch._inductor.codecache``: has headers of this run alone."""

    def are_needed() -> bool:
        return bool(_state.given.get("torch", {}).get("restored") != "hit")

    _state.undo.append(trivet_exec_torch.make_headers_private(module, are_needed))


def watch_kernels(module: Any) -> None:
    """``triton.runtime.jit``: its digest of a kernel leaves things out."""
    plans = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.path.join(plans, "triton_references.py")
    spec: Any = importlib.util.spec_from_file_location("trivet_exec_triton", path)
    references = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(references)
    _state.undo.append(references.count_references(module))


def watch_jax(module: Any) -> None:
    """``jax._src.monitoring``."""

    def event(name: str, **_: object) -> None:
        counted = name.rpartition("/")[2]
        if name.startswith("/jax/compilation_cache/"):
            _state.jax[counted] = _state.jax.get(counted, 0) + 1
            if counted == "compile_requests_use_cache":
                _fit()
            elif counted == "cache_misses":
                report()

    def duration(name: str, seconds: float, **_: object) -> None:
        counted = name.rpartition("/")[2]
        if name.startswith("/jax/compilation_cache/"):
            _state.jax[counted] = _state.jax.get(counted, 0.0) + seconds

    module.register_event_listener(event)
    module.register_event_duration_secs_listener(duration)


def _forked() -> None:
    _state.name = _name()
    _state.lock = threading.RLock()
    _state.inside = threading.local()
    _state.jax.clear()
    _state.written, _state.written_at = "", _NEVER
