from __future__ import annotations

import time
from typing import Any

from tests.support.cli import Shell

from trivet.cache import Cache
from trivet.cli.stats import By, add_up, summarise
from trivet.plans.activity import KEY_LIMIT, Activity, PlanUse


def use(**changes: Any) -> PlanUse:
    facts = {
        "time": 1000.0,
        "model": "net.onnx",
        "graph": "g1",
        "backend": "onnxruntime",
        "bucket": "x=1x16",
        "source": "cache",
        "key": "k1",
    }
    return PlanUse(**{**facts, **changes})


def test_loads_are_counted_by_source_and_reason() -> None:
    uses = [
        use(source="compiled", reason="absent", compile_seconds=2.0),
        use(),
        use(),
        use(source="compiled", reason="corrupt", compile_seconds=1.0),
        use(source="uncompiled", reason="failed before", error="E: no"),
    ]
    line = add_up("", uses, {"k1": 1.5})
    assert (line.loads, line.hits, line.compiled, line.uncompiled) == (5, 2, 2, 1)
    assert (line.hit_rate, line.failure_rate) == (0.4, 0.2)
    assert (line.spent, line.spared) == (3.0, 3.0)
    assert line.misses == {"absent": 1, "corrupt": 1, "failed before": 1}


def test_time_spared_by_a_plan_that_is_gone_is_what_the_log_says_it_cost() -> None:
    uses = [use(source="compiled", reason="absent", compile_seconds=2.0), use(), use()]
    assert add_up("", uses, {}).spared == 4.0


def test_groups_are_models_backends_or_buckets() -> None:
    uses = [
        use(),
        use(bucket="x=8x16", key="k2"),
        use(model="other.onnx", graph="g2", backend="openvino", key="k3"),
    ]
    assert [each.name for each in summarise(uses, By.MODEL, {})] == ["net.onnx", "other.onnx"]
    assert [each.name for each in summarise(uses, By.BACKEND, {})] == ["onnxruntime", "openvino"]
    assert [each.name for each in summarise(uses, By.BUCKET, {})] == [
        "net.onnx x=1x16",
        "net.onnx x=8x16",
        "other.onnx x=1x16",
    ]


def test_keys_that_multiply_raise_the_alarm() -> None:
    uses = [use(key=f"k{i}") for i in range(KEY_LIMIT)]
    assert not add_up("", uses, {}).alarm
    assert add_up("", [*uses, use(key="one more")], {}).alarm
    apart = [use(graph=f"g{i % 2}", key=f"k{i}") for i in range(KEY_LIMIT + 1)]
    assert not add_up("", apart, {}).alarm  # two models, each within the limit


def test_stats_shows_the_alarm_and_leaves_out_what_is_too_old(shell: Shell) -> None:
    with Cache.open(shell.cache, strict=True) as cache:
        assert cache.store is not None
        log = Activity(cache.store.root)
    for i in range(KEY_LIMIT + 1):
        log.append(use(time=time.time() - 7200, key=f"k{i}", source="compiled", reason="absent"))
    log.append(use(time=time.time()))
    done = shell("stats")
    assert done.code == 0
    assert "net.onnx has more than 64 distinct keys" in done.out
    recent = shell("stats", "--since", "1h", "--json").json()
    assert recent["total"]["loads"] == 1
    assert not recent["total"]["alarm"]
