"""The key of a plan: differs when it must, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trivet.errors import InvalidKey
from trivet.keys import Key
from trivet.plans.backend import BackendFacts
from trivet.plans.host import HostFacts
from trivet.plans.key import CLASSIFIED, IN_KEY, plan_key
from trivet.plans.model import GraphId, SourceFile, TensorInfo
from trivet.plans.shapes import Shapes

GRAPH = GraphId(
    format="onnx",
    structure=b"s" * 32,
    weights=b"w" * 32,
    metadata=b"m" * 32,
    inputs=(TensorInfo("x", "float32", ("N", 4)),),
    outputs=(TensorInfo("y", "float32", ("N", 2)),),
    operators=("::Gemm",),
    sources=(SourceFile("/models/a.onnx", 1, 2, 3, 4, 5),),
)
FACTS = BackendFacts(version="1.32.0", libraries={"core.so": "aa", "other.so": "bb"}, record="cc")
HOST = HostFacts(
    system="linux",
    machine="x86_64",
    instruction_set=("avx", "avx2", "sse2"),
    libc="glibc-2.36",
    environment={"HOME": "/root"},
)
FIELDS = {"options": {"threads": 2, "level": "all"}, "environment": {"ORT_X": "1"}}
SHAPES = {"x": (8, 4)}


def key(portable: bool = False, **changes: Any) -> Key:
    parts: dict[str, Any] = {
        "graph": GRAPH, "shapes": SHAPES, "backend": "onnxruntime", "facts": FACTS,
        "fields": FIELDS, "host": HOST, **changes,
    }  # fmt: skip
    return plan_key(*parts.values(), portable=portable)


def changed(struct: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(struct, **changes)


DIFFERENT = {
    "graph.format": {"graph": changed(GRAPH, format="openvino-ir")},
    "graph.structure": {"graph": changed(GRAPH, structure=b"t" * 32)},
    "graph.weights": {"graph": changed(GRAPH, weights=b"v" * 32)},
    "shapes.x": {"shapes": {"x": ("N", 4)}},
    "backend.name": {"backend": "openvino"},
    "backend.version": {"facts": changed(FACTS, version="1.32.1")},
    "backend.libraries.core.so": {
        "facts": changed(FACTS, libraries={"core.so": "ab", "other.so": "bb"})
    },
    "backend.libraries.third.so": {
        "facts": changed(FACTS, libraries={**FACTS.libraries, "third.so": "dd"})
    },
    "backend.record": {"facts": changed(FACTS, record="cd")},
    "host.system": {"host": changed(HOST, system="freebsd")},
    "host.machine": {"host": changed(HOST, machine="aarch64")},
    "host.instruction_set": {"host": changed(HOST, instruction_set=("avx", "sse2"))},
    "options.threads": {"fields": {**FIELDS, "options": {"threads": 3, "level": "all"}}},
    "options.new": {"fields": {**FIELDS, "options": {"threads": 2, "level": "all", "new": None}}},
    "environment.ORT_X": {"fields": {**FIELDS, "environment": {"ORT_X": ""}}},
    "libc": {"fields": {**FIELDS, "libc": "glibc-2.36"}},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_key_differs_when_a_field_does_and_says_which(name: str) -> None:
    other = key(**DIFFERENT[name])
    assert other != key()
    assert other.digest != key().digest
    assert [each.name for each in other.diff(key())] == [name]


SAME = {
    "metadata": {"graph": changed(GRAPH, metadata=b"n" * 32)},
    "path": {"graph": changed(GRAPH, sources=(SourceFile("/other/b.onnx", 9, 9, 9, 9, 9),))},
    "environment": {"host": changed(HOST, environment={"HOSTNAME": "pod-7", "PATH": "/x"})},
    "libc": {"host": changed(HOST, libc="glibc-2.41")},
    "order of features": {"host": changed(HOST, instruction_set=("sse2", "avx2", "avx"))},
    "order of libraries": {"facts": changed(FACTS, libraries={"other.so": "bb", "core.so": "aa"})},
    "order of fields": {"fields": dict(reversed(FIELDS.items()))},
}


@pytest.mark.parametrize("name", SAME)
def test_key_stays_when_nothing_that_counts_differs(name: str) -> None:
    assert key(**SAME[name]) == key()


def test_every_field_of_the_key_has_a_test_that_changes_it() -> None:
    """Fails when the key grows a field that `DIFFERENT` does not vary."""
    fields = {f"{group}.{name}" for group in ("graph", "backend", "host") for name in key()[group]}
    varied = {".".join(name.split(".")[:2]) for name in DIFFERENT}
    assert fields - varied == set()
    assert set(key()) == {name.split(".")[0] for name in DIFFERENT} - {"libc"}


@pytest.mark.parametrize("struct", CLASSIFIED, ids=lambda each: each.__name__)
def test_every_field_of_a_fact_is_classified(struct: type[msgspec.Struct]) -> None:
    """Fails when a fact grows a field: say in `CLASSIFIED` whether plans depend on it."""
    fields = {each.name for each in msgspec.structs.fields(struct)}
    assert fields == CLASSIFIED[struct].keys()
    assert all(why == IN_KEY or len(why) > 20 for why in CLASSIFIED[struct].values())


def test_every_kind_of_fact_is_classified() -> None:
    assert set(CLASSIFIED) == {GraphId, BackendFacts, HostFacts}


def test_a_field_that_nobody_classified_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class Grown(BackendFacts, frozen=True, kw_only=True):
        driver: str

    monkeypatch.setitem(CLASSIFIED, Grown, CLASSIFIED[BackendFacts])  # type: ignore[arg-type]
    grown = Grown(version=FACTS.version, libraries=FACTS.libraries, record="cc", driver="550")
    assert [each.name for each in key(facts=grown).diff(key())] == ["backend.driver"]


def test_portable_plans_are_shared_by_all_cpus_of_an_architecture() -> None:
    narrower = changed(HOST, instruction_set=("sse2",))
    assert key(portable=True) == key(portable=True, host=narrower)
    assert key(portable=True) != key(portable=True, host=changed(HOST, machine="aarch64"))
    assert key(portable=True) != key()


def test_a_machine_whose_features_are_unknown_shares_no_key_with_one_without_any() -> None:
    unknown = changed(HOST, instruction_set=(), instruction_set_unknown="forbidden")
    none = changed(HOST, instruction_set=())
    assert key(host=unknown)["host"]["instruction_set"] == "unknown"
    assert key(host=unknown) != key(host=none)
    assert key(host=unknown, portable=True) == key(portable=True)


@pytest.mark.parametrize("name", ["graph", "shapes", "backend", "host"])
def test_a_backend_cannot_hide_a_field_of_the_key(name: str) -> None:
    with pytest.raises(InvalidKey, match=name):
        key(fields={name: 1})


def test_variants_of_one_model_have_different_keys_and_padded_requests_the_same() -> None:
    bound = Shapes("x=N{2,8}x4").bind(GRAPH.inputs, GRAPH.outputs)
    small, large = bound.variants()
    assert key(shapes=bound.signature(small)) != key(shapes=bound.signature(large))


_PRINT_KEY = """
import sys
sys.path[:0] = sys.argv[1:2]
from test_plan_key_values import key
print(key().digest.hex(), key(portable=True).digest.hex())
"""


def test_key_is_the_same_in_two_processes_hash_seeds_and_folders(tmp_path: Path) -> None:
    """Two processes with other hash seeds, from copies of this file in two folders."""
    digests = set()
    for seed, name in (("1", "one"), ("2", "two")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "test_plan_key_values.py").write_bytes(Path(__file__).read_bytes())
        result = subprocess.run(
            [sys.executable, "-c", _PRINT_KEY, str(folder)],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        digests.add(result.stdout.strip())
    assert digests == {f"{key().digest.hex()} {key(portable=True).digest.hex()}"}


def test_a_plan_without_weights_says_so_and_is_shared_by_all_weights() -> None:
    def without(weights: bytes) -> Key:
        graph = changed(GRAPH, weights=weights)
        return plan_key(
            graph, SHAPES, "torch", FACTS, FIELDS, HOST, portable=False, external_weights=True
        )

    assert without(b"w" * 32) == without(b"v" * 32)
    assert without(b"w" * 32) != key(backend="torch")
    assert without(b"w" * 32).diff(key(backend="torch"))
