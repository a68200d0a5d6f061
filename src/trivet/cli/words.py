"""Reasons and key fields in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet.events import MissReason
from trivet.keys import ABSENT, FieldDifference
from trivet.plans.errors import FAILED_BEFORE, NOT_WORTH_KEEPING, PADDING
from trivet.plans.model import shape_in_words, shapes_in_words

REASONS: Mapping[str, str] = {
    MissReason.ABSENT: "no plan is stored under this key",
    MissReason.EXPIRED: "the stored plan's lifetime is over",
    MissReason.INVALIDATED: "a tag that the stored plan depends on was invalidated",
    MissReason.KEY_MISMATCH: "another key has the same digest",
    MissReason.CORRUPT: "the stored plan is damaged",
    MissReason.INCOMPATIBLE: "the stored entry is of another format or release",
    MissReason.UNAVAILABLE: "the cache folder could not be read",
    MissReason.BREAKER_OPEN: "its entry was damaged twice in a row and is left alone for a while",
    MissReason.CRASHED: "a process died while it was loading the stored plan",
    MissReason.WAIT_TIMEOUT: "another process took too long to compile it",
    "canary": "the stored plan gave another result than when it was made",
    "can't be loaded": "the backend refused the stored plan",
    NOT_WORTH_KEEPING: "reading it back would take longer than compiling it, so it is not kept",
    PADDING: "the shape rules pad requests, and that changes what the model answers",
    FAILED_BEFORE: "compiling it failed before, and nothing has changed since",
}

_FIELDS = (
    ("graph.structure", "the graph: operators, attributes, inputs, outputs"),
    ("graph.weights", "the contents of the weights"),
    ("graph.format", "the format of the model file"),
    ("shapes", "the shapes it is compiled for"),
    ("backend.name", "another backend"),
    ("backend.version", "the version of the backend"),
    ("backend.libraries", "a library of the backend, by content"),
    ("backend.record", "what the backend's package has installed"),
    ("host.instruction_set", "what the CPU can do"),
    ("host", "the machine"),
    ("environment", "an environment variable that the backend reads"),
    ("properties", "an option of the backend"),
    ("options", "an option of the backend"),
    ("level", "how far the backend optimises"),
    ("disabled_optimizers", "an optimiser that is switched off"),
    ("providers", "what the backend computes on"),
    ("device", "what the backend computes on"),
    ("plan_format", "how this release writes plans"),
    ("extensions", "a library with custom operators, by content"),
    ("custom_op_libraries", "a library with custom operators, by content"),
    ("custom_ops", "a file with custom operators, by content"),
    ("flags", "a flag of the compiler"),
    ("importer", "the package that imports models for the compiler"),
    ("front", "the build of JAX itself"),
    ("compiler", "the C++ compiler, by content"),
    ("threads", "the threads of one inference"),
    ("processors", "how many CPUs may be used"),
    ("libc", "the C library"),
    ("framework", "another framework"),
    ("packages", "a build of the framework, or of what it needs"),
    ("python", "the interpreter"),
    ("graphics", "the GPU, or its driver"),
    ("gpu", "the GPU, or its driver"),
    ("plugins", "a plug-in library, by content"),
    ("timing_cache", "the timing cache, by content"),
    ("bindings", "the backend's bindings for Python"),
    ("compilers", "a compiler that the framework calls, by content"),
    ("settings", "a setting of the framework's cache"),
    ("arguments", "an argument of the program"),
    ("order_of_arguments", "which argument stands before which"),
    ("inputs", "a declared input, by content"),
    ("salts", "a declared salt"),
    ("implementations", "a file that implements operators, by content"),
)
NOT_SET = "(not set)"
_SHOWN = 12  # hexadecimal digits of a digest


def reason_in_words(reason: str) -> str:
    """A sentence for a `MissReason` or a reason of the plan loader."""
    return REASONS.get(reason, reason)


def field_in_words(name: str) -> str:
    """What a field of a plan's key stands for."""
    for prefix, words in _FIELDS:
        if name == prefix or name.startswith(prefix + "."):
            return words
    return "something that the backend depends on"


def value_in_words(name: str, value: Any) -> str:
    """A field's value, short."""
    if value is ABSENT:
        return NOT_SET
    if isinstance(value, bytes):
        return value.hex()[:_SHOWN] + "…"
    if name.startswith("shapes.") and isinstance(value, tuple | list):
        return shape_in_words(value)
    if isinstance(value, tuple | list):
        return ", ".join(value_in_words(name, each) for each in value) or "(none)"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={value_in_words(name, value[key])}" for key in value) or "(none)"
    text = "(empty)" if value == "" else str(value)
    return text[:_SHOWN] + "…" if _is_digest(text) else text


def difference_in_words(difference: FieldDifference) -> tuple[str, str]:
    """The two values; of two lists only what the other one lacks."""
    name, mine, theirs = difference.name, difference.mine, difference.theirs
    lists = isinstance(mine, tuple | list) and isinstance(theirs, tuple | list)
    if not lists or name.startswith("shapes."):
        texts = value_in_words(name, mine), value_in_words(name, theirs)
        if texts[0] == texts[1]:  # 2 and "2" are not the same value
            return f"{texts[0]} ({_kind(mine)})", f"{texts[1]} ({_kind(theirs)})"
        return texts
    return _surplus(name, mine, theirs), _surplus(name, theirs, mine)


def _kind(value: Any) -> str:
    return {"str": "text", "int": "number", "float": "number with a point"}.get(
        type(value).__name__, type(value).__name__
    )


def _surplus(name: str, these: tuple[Any, ...], others: tuple[Any, ...]) -> str:
    more = [each for each in these if each not in others]
    if not more:
        return "nothing more" if len(these) < len(others) else "the same, in another order"
    return "also " + value_in_words(name, tuple(more))


def bucket_in_words(shapes: Any) -> str:
    """The field ``shapes`` of a plan's key, such as ``x=8x3x224x224``."""
    if not isinstance(shapes, Mapping):
        return ""
    return shapes_in_words(shapes)


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
