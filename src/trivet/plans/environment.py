"""The environment variables that a framework reads, and which of them a plan depends on.

Deny by default: every variable with a prefix that the framework uses enters the key, whether
somebody has heard of it or not. A name is left out only by a line in the rules that says why.

The prefixes and names come from two sources, taken again for each release that is added: the calls
to ``getenv`` seen while a model was compiled, and the names found in the libraries themselves.
NumPy reads OPENBLAS_*, NPY_* and GOTO_* in the same process; no plan is made by NumPy, so these
are not in the rules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from trivet.keys import FieldValue


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What one framework reads.

    Attributes:
        prefixes: every variable whose name begins so is read by the framework.
        names: variables it reads whose names have none of these prefixes.
        neutral: variable to the reason why no plan depends on it; a name that ends in ``*`` stands
            for all that begin so.
        empty_is_unset: variables for which the reader documents that empty means unset. For all
            others an empty value is a value: some readers test only whether the name is defined.
    """

    prefixes: tuple[str, ...]
    names: tuple[str, ...]
    neutral: Mapping[str, str]
    empty_is_unset: frozenset[str]


# Read by the loader and the C library before any framework is. They can replace the very libraries
# whose contents the key names, and GLIBC_TUNABLES picks among variants of libm.
_LOADER = ("GLIBC_TUNABLES", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD")
_LOADER_EMPTY_IS_UNSET = frozenset(_LOADER)  # ld.so(8)

_OUTPUT = "only writes logs, traces or profiles"
_MEMORY = "sizes an allocator or a cache of the process, not what is computed"

ONNXRUNTIME = Rules(
    prefixes=("ORT_", "ONNXRUNTIME_", "MLAS_", "OMP_", "KMP_", "GOMP_", "MKL_", "ONEDNN_", "DNNL_"),
    names=("ALLOW_RELEASED_ONNX_OPSET_ONLY", *_LOADER),
    neutral={
        "ORT_DISABLE_TELEMETRY": "only switches telemetry off",
        "ORT_DEFAULT_MAX_VLOG_LEVEL": _OUTPUT,
        "OMP_NUM_THREADS": "not read: built without OpenMP since 1.7; a plan holds a graph and no "
        "division of work",
        "OMP_DISPLAY_ENV": _OUTPUT,
        "ONEDNN_VERBOSE": _OUTPUT,
        "DNNL_VERBOSE": _OUTPUT,
    },
    empty_is_unset=_LOADER_EMPTY_IS_UNSET,
)

OPENVINO = Rules(
    prefixes=(
        "OV_",
        "OPENVINO_",
        "ONEDNN_",
        "DNNL_",
        "TBB_",
        "OMP_",
        "KMP_",
        "GOMP_",
        "MKL_",
        "ONNX_",  # its ONNX front end has switches of its own
    ),
    names=_LOADER,
    neutral={
        "OV_ENABLE_PROFILE_PASS": _OUTPUT,
        "OV_ENABLE_SERIALIZE_TRACING": _OUTPUT,
        "OV_ENABLE_VISUALIZE_TRACING": _OUTPUT,
        "OV_VISUALIZE_*": _OUTPUT,
        "OPENVINO_TRACE_DEPTH": _OUTPUT,
        "ONEDNN_ITT_TASK_LEVEL": _OUTPUT,
        "ONEDNN_JIT_DUMP": _OUTPUT,
        "ONEDNN_JIT_PROFILE": _OUTPUT,
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": _MEMORY,
        "ONEDNN_VERBOSE": _OUTPUT,
        "DNNL_ITT_TASK_LEVEL": _OUTPUT,
        "DNNL_JIT_DUMP": _OUTPUT,
        "DNNL_JIT_PROFILE": _OUTPUT,
        "DNNL_PRIMITIVE_CACHE_CAPACITY": _MEMORY,
        "DNNL_VERBOSE": _OUTPUT,
        "KMP_FOR_TCHECK": _OUTPUT,
        "KMP_FOR_TPROFILE": _OUTPUT,
        "OMP_DISPLAY_ENV": _OUTPUT,
        "TBB_MALLOC_*": _MEMORY,
        "TBB_VERSION": _OUTPUT,
    },
    empty_is_unset=_LOADER_EMPTY_IS_UNSET,
)


def significant(environment: Mapping[str, str], rules: Rules) -> dict[str, FieldValue]:
    """The part of ``environment`` that enters the key of a plan, sorted by name.

    A value that is not Unicode is given as its bytes.
    """
    return {
        name.encode(errors="backslashreplace").decode(): _text_or_bytes(value)
        for name, value in sorted(environment.items())
        if is_read(name, rules)
        and neutral_reason(name, rules) is None
        and (value or name not in rules.empty_is_unset)
    }


def _text_or_bytes(value: str) -> str | bytes:
    try:
        value.encode()
    except UnicodeEncodeError:
        return os.fsencode(value)
    return value


def is_read(name: str, rules: Rules) -> bool:
    """Whether the framework reads a variable of this name, as far as the rules know."""
    return name.startswith(rules.prefixes) or name in rules.names


def neutral_reason(name: str, rules: Rules) -> str | None:
    """Why no plan depends on this variable; None when one may."""
    reason = rules.neutral.get(name)
    if reason is None:
        for pattern, why in rules.neutral.items():
            if pattern.endswith("*") and name.startswith(pattern[:-1]):
                return why
    return reason
