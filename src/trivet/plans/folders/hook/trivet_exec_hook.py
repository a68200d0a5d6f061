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
import json
import os
import re
import socket
import sys
import threading

from trivet_exec_extensions import with_headers
from trivet_exec_loaded import RUN, is_own, mapped, torch_counters, vllm_counters
from trivet_exec_operators import add, look_anew, note, operator_files, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FOLDERS = os.path.join(RUN, "folders", "")
_SWITCH = re.compile(r"-[A-Za-z]*[IES]")  # of a Python that runs no sitecustomize of ours
_PYTHON = re.compile(r"python[\d.]*[a-z]?$")
# Not the place of its headers, before another one of headers.
_SILENT = re.compile(r"python[\d.]*[a-z]?['\"]?\s+(-\S+\s+)*-[A-Za-z]*[IES][A-Za-z]*(\s|$)")
_STARTS_OTHERS = re.compile(r"(^|/)(\w*sh|env|timeout|nice|nohup|setsid|xargs)$")
_ARGUMENTS = "TRIVET_EXEC_ARGUMENTS"
_PATIENCE = 3600.0  # seconds; whoever fills the folder may be waited for


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
        self.has_loaded = False  # a library, which may have brought others
        self.doubt = ""
        self.jax: dict[str, float] = {}
        self.written = ""
        self.broken = False
        self.holds: int | None = None


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
            atexit.register(report)
        _state.modules.add(module)
        _ask(module)


def leave(jax_before: str | None) -> None:
    """The guard is over while the process goes on: look at nothing any more."""
    with _state.lock:
        if "jax" in _state.given:
            _lead_jax(jax_before)
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
        inherited: list[str] = json.loads(os.environ.get(_ARGUMENTS, "[]"))
        return inherited
    os.environ[_ARGUMENTS] = json.dumps(given)
    return given


def _ask(module: str, environment: dict[str, str] | None = None, loads: str = "") -> None:
    own = sorted({*_own_files(), *([loads] if loads else [])})
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
                "arguments": _state.arguments,
            }
        )
        for each in answer.get("folders", ()):
            _use(each)
    finally:
        _state.inside.it = False
    report()


def _ask_again(environment: dict[str, str] | None = None, loads: str = "") -> None:
    """What is in use does not fit any more."""
    before = list(_state.given.values())
    with contextlib.suppress(Exception):
        for module in sorted(_state.modules):
            _ask(module, environment, loads)
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
    _use({**given, "name": name, "variables": variables, "settings": {}, "restored": "empty"})
    report()


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
    with _state.lock:
        if _state.broken or not _state.given or getattr(_state.inside, "it", False):
            return
        _state.inside.it = True
        path = os.path.join(RUN, "reports", f"{_state.name}.json")
        try:
            text = json.dumps(_report())
            if text != _state.written:
                with open(path + ".part", "w") as file:
                    file.write(text)
                os.replace(path + ".part", path)
                _state.written = text
        except BaseException:  # noqa: BLE001
            # A name needs no room and no descriptor. An interpreter at its end may lack anything;
            # then nothing can be loaded any more either.
            _state.broken = True
            if not _ending():
                _mark(path)
        finally:
            _state.inside.it = False


def _mark(path: str) -> None:
    try:
        os.replace(path, path + ".broken")
    except OSError:
        with contextlib.suppress(OSError):  # of a child that never wrote one
            os.mkdir(path + ".broken")


def _ending() -> bool:
    return sys.is_finalizing() or not sys.modules


def _report() -> dict[str, Any]:
    loaded = _implementations()
    folders = dict(_state.left)
    for each in _state.given.values():
        each["loaded"] = folders[each["name"]] = loaded
    return {
        "folders": folders,
        "now": sorted(each["name"] for each in _state.given.values()),
        "own": sorted(path for path in loaded if is_own(path)),
        "doubt": _state.doubt or unknown(),
        "torch": torch_counters(),
        "vllm": vllm_counters(),
        "jax": _state.jax,
    }


def _implementations() -> list[str]:
    """Files whose code the frameworks' caches trust not to change, sorted."""
    return sorted({*mapped(), *operator_files()})


def _own_files() -> set[str]:
    return {path for path in _implementations() if is_own(path)}


# -- watching --------------------------------------------------------------------------------------


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's own events; see https://docs.python.org/3/library/audit_events.html."""
    watch = _EVENTS.get(event)
    if (watch is None and not _state.has_loaded) or getattr(_state.inside, "it", False):
        return
    with contextlib.suppress(Exception):
        if _state.has_loaded:
            _state.has_loaded = False
            _look_again()
        if watch is not None:
            watch(*arguments)


def _file(path: object, *_: object) -> None:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(_FOLDERS):
        report()


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
        _state.has_loaded = True


def _searched(name: str) -> str:
    """The library of this name that the program brings; empty where the system has it."""
    search = os.environ.get("LD_LIBRARY_PATH", "")
    paths = [os.path.join(folder, name) for folder in search.split(":")] if search else []
    return next(filter(os.path.isfile, paths), "")


def _import(_: object, path: object, *__: object) -> None:
    _load(path)


def _moved_by(path: str) -> None:
    """Have folders that know of the file, where those in use were filled without it."""
    with _state.lock:
        if any(
            each["restored"] == "hit"
            and path not in each["implementations"]
            and not path.startswith(tuple(each["packages"]))
            for each in _state.given.values()
        ):
            _ask_again(loads=path)


def _look_again() -> None:
    for path in sorted(_own_files()):
        _moved_by(path)


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
    report()
    environment: Any = more[-1] if more else None
    if not isinstance(environment, dict):
        environment = os.environ
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    if not any(_FOLDERS in value for value in given.values()):
        return
    words = arguments if isinstance(arguments, (list, tuple)) else (arguments,)
    texts = [os.fsdecode(each) for each in words if isinstance(each, (str, bytes, os.PathLike))]
    if texts and (_is_silent(texts) or not (_leads_here(given) or _is_compiled(texts[0]))):
        _state.doubt = "a Python that reports nothing was started: " + " ".join(texts)[:200]


def _is_silent(words: list[str]) -> bool:
    """Whether a Python is told to run no sitecustomize of ours."""
    if not _PYTHON.search(words[0]):
        told = _STARTS_OTHERS.search(words[0]) and _SILENT.search(" ".join(words))
        return bool(told)
    takes_next = False
    for word in words[1:]:
        if not takes_next and (not word.startswith("-") or word in ("-c", "-m")):
            return False
        if not takes_next and _SWITCH.match(word):
            return True
        takes_next = not takes_next and word in ("-X", "-W")
    return False


def _leads_here(environment: dict[str, str]) -> bool:
    """Whether a Python with this environment runs our sitecustomize."""
    search = environment.get("PYTHONPATH", "")
    if "torch" in sys.modules and search == os.pathsep.join(map(str, sys.path)):
        return True  # PyTorch's own workers, which run nothing but what is in the key
    here = os.path.dirname(os.path.abspath(__file__))
    return "TRIVET_EXEC_RUN" in environment and here in search.split(os.pathsep)


def _is_compiled(program: str) -> bool:
    """Whether it is a program such as a compiler: no Python, nor anything that may start one."""
    import shutil

    path = shutil.which(program)
    if path is None or _PYTHON.search(program) or _STARTS_OTHERS.search(program):
        return False
    with open(path, "rb") as file:
        return file.read(2) != b"#!"


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


def watch_compiling(module: Any) -> None:
    """``torch._dynamo.callback``."""
    module.callback_handler.register_start_callback(_before_compiling)
    module.callback_handler.register_end_callback(report)


def _before_compiling(*_: object) -> None:
    with contextlib.suppress(Exception):
        look_anew()
        _look_again()
    report()


def watch_operators(module: Any) -> None:
    """``torch.library``: what is given to a dispatcher is in no registry of Python."""
    module.Library.impl = _noting(module.Library.impl, 2, "fn")


def watch_backends(module: Any) -> None:
    """``torch._dynamo.backends.registry``: a program's own backend may bring decompositions."""
    module.lookup_backend = _noting(module.lookup_backend, 0, "compiler_fn")


def watch_extensions(module: Any) -> None:
    """``torch.utils.cpp_extension``: has folders that know of the files before it compiles them."""
    import functools

    compiling = module.load

    @functools.wraps(compiling)
    def load(name: Any, sources: Any, *given: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):
            folders = named.get("extra_include_paths", given[4] if len(given) > 4 else None)
            add(with_headers([sources] if isinstance(sources, str) else sources, folders or ()))
            _look_again()
        return compiling(name, sources, *given, **named)

    module.load = load


def _noting(function: Any, place: int, name: str) -> Any:
    """``function``, made to note the argument that implements something."""
    import functools

    @functools.wraps(function)
    def noting(*given: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):
            note(given[place] if len(given) > place else named[name])
        return function(*given, **named)

    return noting


def watch_jax(module: Any) -> None:
    """``jax._src.monitoring``."""

    def event(name: str, **_: object) -> None:
        counted = name.rpartition("/")[2]
        if name.startswith("/jax/compilation_cache/"):
            _state.jax[counted] = _state.jax.get(counted, 0) + 1
            if counted == "cache_misses":
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
    _state.written = ""
