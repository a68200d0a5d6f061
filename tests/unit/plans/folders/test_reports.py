"""What processes wrote down, added up, and said in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from trivet.cli.effect import effects_in_words
from trivet.plans.folders import Effect, Restored
from trivet.plans.folders.reports import Counters, Reports, counters_of


def counted(folder: Path, framework: str, *told: dict[str, int]) -> Counters | None:
    """The counters of as many processes, which have the folder "kept"."""
    for number, each in enumerate(told):
        written = {"now": ["kept"], framework: each}
        (folder / f"{number}-aa.json").write_bytes(msgspec.json.encode(written))
    return counters_of(Reports(folder).all(), framework, "kept", {"kept": True})


@pytest.mark.parametrize(
    ("framework", "told", "hits", "misses"),
    [
        ("torch", {"autograd_cache_hit": 1, "fxgraph_cache_hit": 1}, 1, 0),
        ("torch", {"fxgraph_cache_hit": 2, "fxgraph_cache_miss": 1}, 2, 1),
        ("jax", {"cache_hits": 3, "cache_misses": 1}, 3, 1),
        ("vllm", {"num_aot_artifacts_loaded": 1}, 1, 0),
        # It could not load the whole, and has compiled all parts of it again.
        ("vllm", {"num_aot_compiles": 1, "num_inductor_compiles": 31}, 0, 1),
        ("vllm", {"num_compiled_artifacts_loaded": 31}, 31, 0),
        ("vllm", {"num_inductor_compiles": 31}, 0, 31),
    ],
)
def test_frameworks_counters_are_hits_and_misses(
    tmp_path: Path, framework: str, told: dict[str, int], hits: int, misses: int
) -> None:
    found = counted(tmp_path, framework, told, told, {})
    assert found is not None
    assert (found.hits, found.misses) == (2 * hits, 2 * misses)


def test_who_counts_nothing_has_no_counters(tmp_path: Path) -> None:
    assert counted(tmp_path, "vllm", {}) is None
    assert counted(tmp_path, "triton") is None


@pytest.mark.parametrize(
    ("filled", "counts"),
    [
        ({"first": True, "second": False}, "first"),
        ({"first": True, "second": True}, "second"),
        ({"first": False, "second": False}, "second"),
        ({"second": False}, "second"),
    ],
)
def test_who_goes_on_with_its_first_folder_is_counted_there(
    tmp_path: Path, filled: dict[str, bool], counts: str
) -> None:
    """As vLLM does, which reads the environment once."""
    report = {"folders": {"first": [], "other": [], "second": []}, "now": ["other", "second"]}
    told = {**report, "vllm": {"num_aot_compiles": 1}}
    (tmp_path / "1-aa.json").write_bytes(msgspec.json.encode(told))
    found = {each: counters_of(Reports(tmp_path).all(), "vllm", each, filled) for each in filled}
    assert found == {each: Counters(misses=1) if each == counts else None for each in filled}


def effect(**told: Any) -> Effect:
    given = {"framework": "vllm", "restored": Restored.HIT, "reason": "", "files": 28, "size": 6000}
    given |= {"added": 0, "left_out": 0, "not_kept": "", "counters": None}
    return Effect(**{**given, **told})


def test_what_was_restored_in_vain_is_said() -> None:
    said = effects_in_words([effect(counters=Counters(misses=1))])
    assert said == (
        "vllm: restored 28 files (6.0 kB), but vllm used nothing of it: it compiled other things, "
        "or could not load what it had kept, 0 hits, 1 miss"
    )
    assert "the program compiled nothing" in effects_in_words([effect(counters=Counters())])
    assert "used nothing" not in effects_in_words([effect(counters=Counters(hits=1))])


def test_one_file_is_no_files() -> None:
    assert "restored 1 file (" in effects_in_words([effect(files=1)])
    assert "kept 1 more file" in effects_in_words([effect(added=1)])
    assert effects_in_words([effect(files=0, restored="empty", added=1)]).endswith("kept 1 file")


def test_what_the_framework_does_not_cache_is_said_and_not_taken_for_nothing() -> None:
    """As of a model that is frozen: PyTorch makes its graphs anew at every start."""
    told = {"fxgraph_cache_hit": 0, "fxgraph_cache_miss": 0, "fxgraph_cache_bypass": 2}
    found = Counters()
    for each in (told, {"compile_seconds": 3.0}):
        found = Counters(
            bypasses=each.get("fxgraph_cache_bypass", 0),
            compile_seconds=each.get("compile_seconds", 0.0),
        )
        said = effects_in_words([effect(framework="torch", counters=found)])
        assert "compiled nothing" not in said
        assert "but no graphs: torch's cache does not hold those of this program" in said
    assert said.endswith("0 hits, 0 misses")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"files": 1, "size": 12, "added": 1}, "restored 1 file (12 B), no counters reported, "
         "kept 1 more file"),
        ({"counters": Counters(hits=1, misses=2), "added": 2}, "restored 28 files (6.0 kB), 1 hit, "
         "2 misses, kept 2 more files"),
        ({"restored": Restored.EMPTY, "reason": "absent", "files": 0, "added": 1,
          "counters": Counters(misses=1, bypasses=1)},
         "nothing restored (no folder is kept under this key), 0 hits, 1 miss, 1 not cacheable, "
         "kept 1 file"),
        ({"restored": Restored.EMPTY, "reason": "wait-timeout", "files": 0, "added": 3,
          "left_out": 1},
         "nothing restored (another run was compiling it), no counters reported, kept 3 files, "
         "left out 1 that was half written or tells of a failure"),
    ],
)  # fmt: skip
def test_one_and_more_are_said_as_people_do(told: dict[str, Any], words: str) -> None:
    assert effects_in_words([effect(**told)]) == f"vllm: {words}"
