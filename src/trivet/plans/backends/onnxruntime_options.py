"""Options of the ONNX Runtime backend: what may be set, what enters the key, what does nothing."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from trivet.errors import BackendError
from trivet.plans.backend import Finding, Severity

CPU = "CPUExecutionProvider"
Provider: TypeAlias = "str | tuple[str, Mapping[str, str]]"

LEVELS: Mapping[str, str] = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}

# Entries that this backend sets itself, each with the way to get what the entry would have done.
_OURS: Mapping[str, str] = {
    "optimization.disable_specified_optimizers": "use disabled_optimizers=",
    "session.execution_mode": "use inter_op_threads=",
    "session.graph_optimization_level": "use level=",
    "session.inter_op_num_threads": "use inter_op_threads=",
    "session.intra_op_num_threads": "use threads=",
    "session.load_model_format": "plans are kept as ONNX files",
    "session.save_model_format": "plans are kept as ONNX files",
    "session.optimized_model_filepath": "the optimised model is the plan; the cache keeps it",
    "session.optimized_model_external_initializers_file_name": "the cache names its own files",
    "session.optimized_model_external_initializers_min_size_in_bytes": "the plan's own layout",
    "session.save_external_prepacked_constant_initializers": "plans hold no packed weights",
}

# Entries that change how a loaded session waits, and nothing in the plan.
_NEUTRAL = frozenset(
    {
        "session.force_spinning_stop",
        "session.inter_op.allow_spinning",
        "session.inter_op.spin_backoff_max",
        "session.inter_op.spin_duration_us",
        "session.intra_op.allow_spinning",
        "session.intra_op.spin_backoff_max",
        "session.intra_op.spin_duration_us",
    }
)

_FROM_MODEL = "ORT_LOAD_CONFIG_FROM_MODEL"

_CRASHES = frozenset({"session.use_ort_model_bytes_for_initializers"})
_WRITES = ("ep.context_", "session.collect_node_memory_stats_to_file", "session.enable_profiling")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Checked and normalised options of one backend.

    ``custom_op_libraries`` are absolute paths, in the order of registration.
    """

    threads: int | None
    inter_op_threads: int | None
    level: str
    entries: dict[str, str]
    disabled_optimizers: tuple[str, ...]
    custom_op_libraries: tuple[str, ...]
    providers: tuple[tuple[str, dict[str, str]], ...]

    @property
    def significant_entries(self) -> dict[str, str]:
        """The configuration entries that a plan may depend on: all but the known neutral ones."""
        return {key: value for key, value in self.entries.items() if key not in _NEUTRAL}

    @property
    def cpu_only(self) -> bool:
        """Whether nothing but ONNX Runtime's own CPU code computes."""
        return all(name == CPU for name, _ in self.providers)


def check_options(
    *,
    threads: int | None,
    inter_op_threads: int | None,
    level: str,
    options: Mapping[str, str],
    disabled_optimizers: Sequence[str],
    custom_op_libraries: Sequence[str | os.PathLike[str]],
    providers: Sequence[Provider],
) -> Options:
    """`Options` from what a caller gave. Raises `BackendError` for what can't be honoured."""
    for name, number in (("threads", threads), ("inter_op_threads", inter_op_threads)):
        if number is not None and (type(number) is not int or number < 1):
            raise BackendError(f"{name} is a number of threads from 1 up, got {number!r}")
    if level not in LEVELS:
        raise BackendError(f"level is one of {', '.join(LEVELS)}, got {level!r}")
    return Options(
        threads=threads,
        inter_op_threads=inter_op_threads,
        level=level,
        entries=_entries(options),
        disabled_optimizers=tuple(sorted(set(_names(disabled_optimizers, "disabled_optimizers")))),
        custom_op_libraries=_libraries(custom_op_libraries),
        providers=_providers(providers),
    )


def _entries(options: Mapping[str, str]) -> dict[str, str]:
    for key, value in options.items():
        if type(key) is not str or not key:
            raise BackendError(f"a configuration entry has a name, got {key!r}")
        if type(value) is not str:
            raise BackendError(
                f"ONNX Runtime takes configuration entries as text, got {key}={value!r}",
                hint='write "1" and "0" for on and off',
            )
        if key in _OURS:
            raise BackendError(f"{key} can't be set through options", hint=_OURS[key])
    return dict(sorted(options.items()))


def _names(names: Sequence[str], what: str) -> Sequence[str]:
    if isinstance(names, str) or not all(type(name) is str and name for name in names):
        raise BackendError(f"{what} is a sequence of names, got {names!r}")
    return names


def _libraries(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(paths, str | os.PathLike):
        raise BackendError(f"custom_op_libraries is a sequence of paths, got {paths!r}")
    for path in paths:
        if not Path(path).is_file():
            raise BackendError(f"there is no custom operator library {os.fspath(path)}")
    return tuple(str(Path(path).absolute()) for path in paths)


def _providers(providers: Sequence[Provider]) -> tuple[tuple[str, dict[str, str]], ...]:
    checked = []
    for each in [] if isinstance(providers, str) else providers:
        name, options = (each, {}) if isinstance(each, str) else each
        if any(type(text) is not str for text in (name, *options, *options.values())):
            raise BackendError(f"options of a provider are text, got {each!r}")
        checked.append((name, dict(sorted(options.items()))))
    if not checked:
        raise BackendError(f"providers is a sequence such as ({CPU!r},), got {providers!r}")
    return tuple(checked)


def lint_options(
    options: Options, environment: Mapping[str, str], libraries: Sequence[Path]
) -> list[Finding]:
    """Entries that do nothing, crash or write files; environment that has no effect here."""
    findings = []
    for key in options.entries:
        if not known(key, libraries):
            findings.append(_unknown(f"the configuration entry {key}"))
        if key in _CRASHES:
            findings.append(
                Finding(
                    severity=Severity.ERROR,
                    code="option-crashes",
                    message=f"{key} made ONNX Runtime 1.32 crash on models of ordinary size",
                    hint="remove it: weights of a plan are mapped from its file, not copied",
                )
            )
        if key.startswith(_WRITES):
            findings.append(
                Finding(
                    severity=Severity.WARNING,
                    code="option-writes-files",
                    message=f"{key} makes ONNX Runtime write files that the cache does not keep",
                    hint="remove it",
                )
            )
    for name in options.disabled_optimizers:
        if not known(name, libraries, whole=True):
            findings.append(_unknown(f"the optimiser {name}"))
    if not options.cpu_only:
        findings.append(
            Finding(
                severity=Severity.WARNING,
                code="provider-not-cached",
                message="plans are kept for the CPU provider alone; models run uncompiled with "
                + ", ".join(name for name, _ in options.providers),
                hint="use the provider's own cache, guarded by `trivet exec`",
            )
        )
    if model_sets_options(environment):
        findings.append(
            Finding(
                severity=Severity.WARNING,
                code="options-from-models",
                message=f"{_FROM_MODEL} is set: models bring options of their own, behind the "
                "key, so no plan is kept",
                hint="give the options to the backend, and unset the variable",
            )
        )
    return findings


def _unknown(what: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        code="unknown-option",
        message=f"the installed ONNX Runtime does not know {what}; it takes it without a word and "
        "does nothing",
        hint="check the spelling, or remove it",
    )


def known(name: str, libraries: Iterable[Path], *, whole: bool = False) -> bool:
    """Whether a name occurs in one of the libraries; False where there is none.

    Compilers build some constants from pieces of eight bytes. So unless it must be ``whole``, as
    the names of optimisers, which are names of classes, a name also counts as known when all its
    pieces occur: an option that works is never called unknown, and seldom the other way round.
    """
    for path in libraries:
        stat = path.stat()
        if _occurs(name, whole, str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns):
            return True
    return False


@functools.lru_cache(maxsize=1024)
def _occurs(name: str, whole: bool, path: str, *_identity: int) -> bool:
    wanted = name.encode()
    pieces = [wanted[i : i + 8] for i in range(0, len(wanted) - 7, 8)]
    with (
        Path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        if data.find(wanted) >= 0:
            return True
        return not whole and len(pieces) > 1 and all(data.find(piece) >= 0 for piece in pieces)


def model_sets_options(environment: Mapping[str, str]) -> bool:
    """Whether ONNX Runtime will apply options that it finds in a model's metadata."""
    return environment.get(_FROM_MODEL, "") not in ("", "0")
