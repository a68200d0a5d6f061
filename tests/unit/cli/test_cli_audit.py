"""What ``trivet audit`` says and how it exits, for probes that only pretend."""

from __future__ import annotations

import json

import pytest

from trivet.audit import catalog
from trivet.audit.finding import Guarded, Own, Probe, Result
from trivet.cli import main


def pretend(monkeypatch: pytest.MonkeyPatch, own: Own, guarded: Guarded) -> None:
    result = Result(own=own, own_evidence="seen", guarded=guarded, guarded_evidence="also seen")
    probe = Probe(id="some-thing", framework="onnxruntime", title="a title", run=lambda _: result)
    monkeypatch.setattr(catalog, "probes", lambda *_: [probe])


@pytest.mark.parametrize(
    ("own", "guarded", "code", "strict"),
    [
        (Own.WRONG, Guarded.RIGHT, 0, 1),
        (Own.WASTEFUL, Guarded.RIGHT, 0, 1),
        (Own.NOT_REPRODUCED, Guarded.RIGHT, 0, 0),
        (Own.NOT_RUN, Guarded.NOT_RUN, 0, 0),
        (Own.NOT_REPRODUCED, Guarded.WRONG, 1, 1),
        (Own.NOT_REPRODUCED, Guarded.NO_BETTER, 1, 1),
    ],
)
def test_only_a_guarded_run_that_was_not_right_fails(
    own: Own, guarded: Guarded, code: int, strict: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, own, guarded)
    assert main(["audit"]) == code
    assert main(["audit", "--strict"]) == strict


def test_the_last_line_counts_wrong_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for guarded, count in ((Guarded.RIGHT, 0), (Guarded.WRONG, 1)):
        pretend(monkeypatch, Own.WRONG, guarded)
        main(["audit"])
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"wrong results over the whole audit list when guarded: {count}"


def test_evidence_and_page_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, Own.WRONG, Guarded.RIGHT)
    main(["audit"])
    out = capsys.readouterr().out
    for each in ("a title", "seen", "also seen", "docs/explanation/audit/some-thing.md"):
        assert each in out
    main(["audit", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][0]["own_evidence"] == "seen"
    assert told["summary"]["own_wrong"] == 1


def test_listing_tries_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--list", "jax"]) == 0
    out = capsys.readouterr().out
    assert "jax-cut-entry" in out
    assert "torch" not in out
    assert main(["audit", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["probes"]
    assert {each["framework"] for each in listed} == set(catalog.FRAMEWORKS)


def test_single_probes_are_chosen_beside_whole_frameworks() -> None:
    chosen = catalog.probes(["jax-cut-entry", "openvino"])
    assert {each.framework for each in chosen} == {"jax", "openvino"}
    assert [each.id for each in chosen if each.framework == "jax"] == ["jax-cut-entry"]


def test_a_name_of_no_framework_or_probe_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "no-such-thing"]) == 2
    assert "trivet audit --list" in capsys.readouterr().err
