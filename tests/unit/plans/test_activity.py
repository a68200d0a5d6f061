"""The log of what plans were used."""

from __future__ import annotations

from pathlib import Path

from trivet.plans.activity import Activity, PlanUse


def test_names_that_are_not_unicode_are_logged_too(tmp_path: Path) -> None:
    log = Activity(tmp_path)
    for name in ("model.onnx", "\udcff.onnx"):
        log.append(
            PlanUse(
                time=1.5,
                model=name,
                graph="",
                backend="",
                bucket="",
                source="",
                key="",
                seconds=2.0,
            )
        )
    assert [each.model for each in log] == ["model.onnx", "\\udcff.onnx"]
    assert [each.seconds for each in log] == [2.0, 2.0]
