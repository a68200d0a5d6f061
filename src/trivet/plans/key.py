"""The key of a plan: everything that it depends on, and nothing else.

Deny by default: a field that a fact grows is part of the key until a line in these tables says why
it is not. No paths, host names, process ids or times.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trivet.errors import InvalidKey
from trivet.keys import FieldValue, Key
from trivet.plans.backend import BackendFacts
from trivet.plans.host import HostFacts
from trivet.plans.model import GraphId

SPACE = "plan/1"
PORTABLE = "portable"
UNKNOWN = "unknown"
EXTERNAL = "external"

OF_BUILD = frozenset(
    {"backend", "compiler", "front", "host", "importer", "libc", "plan_format", "processors"}
)
"""Fields that a new build, another machine or another release of this package changes, while the
model, the shapes and what was asked of the backend stay the same."""

IN_KEY = ""
"""In `CLASSIFIED`: the field is part of the key. Any other text is the reason why it is not."""

CLASSIFIED: Mapping[type[msgspec.Struct], Mapping[str, str]] = {
    GraphId: {
        "format": IN_KEY,
        "structure": IN_KEY,
        "weights": IN_KEY,
        "metadata": "computes nothing; a backend that would read options from it keeps no plan",
        "inputs": "names, types and shapes are part of the structure",
        "outputs": "names, types and shapes are part of the structure",
        "operators": "follow from the structure",
        "sources": "paths and times: the same content elsewhere is the same graph",
    },
    BackendFacts: {
        "version": IN_KEY,
        "libraries": IN_KEY,
        "record": IN_KEY,
    },
    HostFacts: {
        "system": IN_KEY,
        "machine": IN_KEY,
        "instruction_set": "in the key by its own rule: whole, or 'portable'",
        "instruction_set_unknown": "a text for people; the key then says 'unknown'",
        "libc": "a plan does not contain it; a backend whose plans do adds it to its fields",
        "environment": "the backend's fields hold what its framework reads",
    },
}


def plan_key(
    graph: GraphId,
    shapes: FieldValue,
    backend: str,
    facts: BackendFacts,
    fields: Mapping[str, FieldValue],
    host: HostFacts,
    *,
    portable: bool,
    external_weights: bool = False,
) -> Key:
    """The key of one plan.

    Args:
        graph: what is compiled.
        shapes: `BoundShapes.signature` of the variant.
        backend: `Backend.name`. facts: `Backend.facts`. fields: `Backend.key_fields`.
        host: the machine that compiles or looks up.
        portable: whether the plan holds for all CPUs of this architecture.
        external_weights: whether the plan holds no weights; the key then says ``"external"``
            instead of what they are.

    The fields of a backend stand beside ``graph``, ``shapes``, ``backend`` and ``host``. A plan
    that is not portable has the whole instruction set in its key: a plan from another set, wider
    or narrower, is another plan. Where `HostFacts.instruction_set_unknown`, such a key says
    ``"unknown"``: it can stand for a lease, but nothing may be stored under it.

    Raises `InvalidKey` when a field has no canonical form or takes one of the four names.
    """
    own: dict[str, FieldValue] = {
        "graph": _fields(graph) | ({"weights": EXTERNAL} if external_weights else {}),
        "shapes": shapes,
        "backend": {"name": backend, **_fields(facts)},
        "host": {**_fields(host), "instruction_set": _instruction_set(host, portable)},
    }
    taken = own.keys() & fields.keys()
    if taken:
        raise InvalidKey(f"the backend {backend!r} may not set the key field {min(taken)!r}")
    return Key(SPACE, {**own, **fields})


def _instruction_set(host: HostFacts, portable: bool) -> FieldValue:
    if portable:
        return PORTABLE
    return UNKNOWN if host.instruction_set_unknown else tuple(sorted(host.instruction_set))


def _fields(facts: msgspec.Struct) -> dict[str, FieldValue]:
    table = CLASSIFIED[type(facts)]
    return {
        name: getattr(facts, name)
        for name in facts.__struct_fields__
        if table.get(name, IN_KEY) == IN_KEY
    }


def part(key: Key, field: str, name: str) -> FieldValue:
    """``name`` within a field of a stored key; None where it has none.

    Another release, or whoever can write into the folder, may have stored keys of another form.
    """
    found = key.get(field)
    return found.get(name) if isinstance(found, Mapping) else None
