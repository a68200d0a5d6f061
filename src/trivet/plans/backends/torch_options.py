"""The options of the PyTorch backend: settings of Inductor that a plan can honour."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from trivet.errors import BackendError

Option: TypeAlias = int | float | bool

# Inductor has some five hundred settings; most of them concern other devices, its caches, or its
# debugging. These change how a model is compiled for a CPU, and each of them is in the key.
_KNOWN: Mapping[str, type] = {
    "aggressive_fusion": bool,
    "coordinate_descent_tuning": bool,
    "cpp.dynamic_threads": bool,
    "cpp.enable_concat_linear": bool,
    "cpp.enable_floating_point_contract_flag": bool,
    "cpp.enable_grouped_gemm_template": bool,
    "cpp.enable_loop_tail_vec": bool,
    "cpp.enable_tiling_heuristics": bool,
    "cpp.enable_unsafe_math_opt_flag": bool,
    "cpp.fallback_scatter_reduce_sum": bool,
    "cpp.max_horizontal_fusion_size": int,
    "cpp.min_chunk_size": int,
    "cpp.no_redundant_loops": bool,
    "cpp.simdlen": int,
    "cpp.use_decompose_tanh": bool,
    "epilogue_fusion": bool,
    "fallback_random": bool,
    "max_autotune": bool,
    "max_autotune_gemm": bool,
    "max_fusion_size": int,
    "permute_fusion": bool,
    "shape_padding": bool,
    "split_reductions": bool,
}
_REFUSED = {
    "freezing": "it bakes weights into the code, and plans are shared by versions of a model that "
    "differ in their weights",
}

# What makes a plan free of its weights. Inductor writes small constants into the code, and folds
# those whose elements are all alike; other weights would then give the answers of the first ones.
WEIGHTS_OUTSIDE: Mapping[str, object] = {
    "always_keep_tensor_constants": True,
    "aot_inductor.package_constants_in_so": False,
    "freezing": False,
    "joint_graph_constant_folding": False,
}
# A header that is compiled ahead pays off for the second model in the same folder; there is none.
PRIVATE_FOLDER: Mapping[str, object] = {
    "aot_inductor.precompile_headers": False,
    "cpp_cache_precompile_headers": False,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
}


_TEXTS = {"true": True, "false": False}


def check_options(options: Mapping[str, Option | str]) -> dict[str, Option]:
    """The options, sorted by name; a text, as a command line gives it, in its setting's type.

    Raises `BackendError` for one that a plan can't honour.
    """
    checked: dict[str, Option] = {}
    for name, given in options.items():
        if name in _REFUSED:
            raise BackendError(f"{name} can't be set: {_REFUSED[name]}")
        kind = _KNOWN.get(name)
        if kind is None:
            raise BackendError(
                f"{name!r} is not an Inductor setting that plans support",
                hint=f"supported are {', '.join(_KNOWN)}",
            )
        value = _TEXTS.get(given.lower(), given) if isinstance(given, str) else given
        if isinstance(value, str) and kind is int and value.isdecimal():
            value = int(value)
        if isinstance(value, str) or type(value) is not kind:
            raise BackendError(f"{name} is a {kind.__name__}, got {given!r}")
        checked[name] = value
    return dict(sorted(checked.items()))


def check_threads(threads: int | None) -> int:
    """The number of threads that is compiled in: as given, or one for each usable CPU."""
    if threads is None:
        return len(os.sched_getaffinity(0))
    if type(threads) is not int or threads < 1:
        raise BackendError(f"threads is a number from 1, got {threads!r}")
    return threads


def check_operators(paths: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Absolute paths of what registers custom operators, in the order in which it is loaded."""
    if isinstance(paths, str | os.PathLike):
        raise BackendError("custom_ops is a sequence of paths, got a single one")
    found = tuple(Path(each).absolute() for each in paths)
    for path in found:
        if path.suffix not in (".py", ".so") or not path.is_file():
            raise BackendError(f"custom_ops: {path} is no .py file and no .so library")
    return found
