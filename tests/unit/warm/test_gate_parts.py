"""Parts of the gate that no sound runtime gets to: what processes tell before they are gone."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest
from tests.support.engine import eventually

from trivet.errors import TrivetError
from trivet.warm import gate
from trivet.warm.gate_child import Opened, Refused, Reported
from trivet.warm.isolate import Ended, run_isolated
from trivet.warm.report import (
    GateReport,
    TargetReport,
    VariantReport,
    changes,
    read_report,
    write_report,
)


class Nothing(msgspec.Struct):
    """A job without content."""


def heard(*told: object, ended: Ended | None = None) -> gate._Heard:
    found = gate._Heard(gate._Counter(lambda done, what: None), "net", counts=True)
    for each in told:
        found.line(msgspec.json.encode(each))
    found.end(ended or Ended())
    return found


def variant(shapes: str, result: str = "compiled", **more: object) -> VariantReport:
    facts = {"key": "a", "fields": {"v": 1}, **more}
    return VariantReport(shapes=shapes, result=result, **facts)  # type: ignore[arg-type]


def target(name: str, *variants: VariantReport, required: bool = True) -> TargetReport:
    return TargetReport(
        name=name, model=name, backend="b", required=required, variants=list(variants)
    )


def report(*targets: TargetReport) -> GateReport:
    return GateReport(trivet="0", created=0.0, plan="plan.toml", targets=list(targets))


# -- what is heard ---------------------------------------------------------------------------------


def test_a_process_that_ends_without_a_word_is_no_success() -> None:
    found = heard(ended=Ended())
    assert found.error == "its process ended before it was done"
    assert not target("a").passed


def test_what_it_did_not_get_to_was_not_run() -> None:
    told = (Opened(["x=1", "x=2", "x=3"]), Reported(variant("x=1")))
    found = heard(*told, ended=Ended(trouble="died"))
    assert [each.result for each in found.variants] == ["compiled", "failed", "not run"]
    assert found.variants[1].error == "died"
    quiet = heard(*told)  # as if it had ended well, but in the middle
    assert [each.passed for each in quiet.variants] == [True, False, False]


def test_a_variant_of_which_nothing_was_heard_is_never_passed() -> None:
    found = heard(Opened(["x=1"]), Refused("no room", ""))
    assert [each.passed for each in found.variants] == [False]
    assert found.error == "no room"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([Opened(["x=1"]), Reported(variant("x=1", "failed", reason="absent"))], "absent"),
        ([Opened(["x=1"]), Reported(variant("x=1", "cache", key="b"))], "another key"),
        ([Opened(["x=1"]), Reported(variant("x=1", "failed", error="torn"))], "torn"),
        ([Refused("no such folder", "")], "no such folder"),
        ([Opened(["x=1"])], "its process ended before it was done"),
    ],
)
def test_what_a_second_process_can_not_use_did_not_pass(told: list[object], says: str) -> None:
    second = heard(*told)
    found = {each.shapes: each for each in second.variants}
    judged = gate._confirmed(variant("x=1"), found.get("x=1"), second)
    assert not judged.passed
    assert says in judged.error
    same = heard(Opened(["x=1"]), Reported(variant("x=1", "cache")))
    assert gate._confirmed(variant("x=1"), same.variants[0], same).passed


# -- processes -------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that a test writes, for a child to run."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "childs_work.py"


def run(module: Path, code: str, seconds: float = 60.0) -> tuple[Ended, list[bytes]]:
    body = "\n".join(f"    {line}" for line in code.splitlines())
    module.write_text(f"def main():\n    import os, signal, subprocess, sys\n{body}\n")
    told: list[bytes] = []
    ended = run_isolated(
        module.stem, Nothing(), told.append, seconds=seconds, stop=threading.Event()
    )
    return ended, told


def test_lines_come_and_the_end_is_told(module: Path) -> None:
    ended, told = run(module, "print(1)\nprint(2, flush=True)")
    assert (ended, told) == (Ended(), [b"1", b"2"])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGABRT)", "ended by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
        ("raise RuntimeError('what a mess')", "ended with 1: RuntimeError: what a mess"),
        ("os._exit(7)", "ended with 7: it said nothing"),
        ("sys.stderr.write('x' * (1 << 20)); sys.exit(3)", "ended with 3"),
    ],
)
def test_how_it_ended_is_said(code: str, says: str, module: Path) -> None:
    ended, _ = run(module, code)
    assert says in ended.trouble


def test_what_it_started_ends_with_it(module: Path) -> None:
    code = "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\nprint(child.pid, flush=True)"
    ended, told = run(module, f"{code}\nos._exit(0)")
    assert ended == Ended()
    pid = int(told[0])
    eventually(lambda: _is_gone(pid), "the child of the child is gone")


def test_too_late_is_too_late_with_all_that_it_started(module: Path) -> None:
    code = "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\nprint(child.pid, flush=True)"
    ended, told = run(module, f"{code}\nsignal.pause()", seconds=3.0)
    assert (ended.trouble, ended.timed_out) == ("took longer than 3 s", True)
    pid = int(told[0])
    eventually(lambda: _is_gone(pid), "the child of the child is gone")


def test_nobody_waits_for_what_nobody_wants_any_more(module: Path) -> None:
    module.write_text("def main():\n    import signal; print('up', flush=True); signal.pause()\n")
    stop = threading.Event()
    ended = run_isolated(module.stem, Nothing(), lambda line: stop.set(), seconds=60.0, stop=stop)
    assert "SIGKILL" in ended.trouble
    assert not ended.timed_out


def test_its_output_is_its_own_and_what_compilers_print_is_not(module: Path) -> None:
    code = """
from trivet.plans.backends.child import own_output
own = own_output()
os.system("echo compiling")
os.write(own, b"told\\n")
"""
    ended, told = run(module, code)
    assert (ended, told) == (Ended(), [b"told"])


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # dead, and of a parent that does not look


# -- reports ---------------------------------------------------------------------------------------


def test_only_what_is_required_decides() -> None:
    bad = variant("x=1", "failed")
    assert report(target("a", variant("x=1")), target("b", bad, required=False)).passed
    assert not report(target("a", variant("x=1")), target("b", bad)).passed
    assert not report(target("a")).passed, "no variant was run"
    assert not report(target("b", bad, required=False)).passed, "nothing passed"


def test_changes_name_fields_and_what_came_and_went() -> None:
    before = report(target("a", variant("x=1"), variant("x=2")), target("gone", variant("x=1")))
    moved = variant("x=2", key="b", fields={"v": 2, "w": 0})
    now = report(target("a", variant("x=1"), moved), target("new", variant("x=1")))
    found = changes(now, before)
    assert [(each.name, each.shapes, each.kind) for each in found] == [
        ("a", "x=2", "key"),
        ("new", "x=1", "new"),
        ("gone", "x=1", "gone"),
    ]
    assert [each.name for each in found[0].differences] == ["v", "w"]
    assert changes(now, now) == []


def test_a_report_survives_being_written_and_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    assert read_report(path) is None
    first = report(target("a", variant("x=1")))
    write_report(first, path)
    assert read_report(path) == first
    write_report(report(), path)
    assert read_report(path) == report()
    assert os.listdir(tmp_path) == ["gate.json"]
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 99'))
    with pytest.raises(TrivetError, match="another release"):
        read_report(path)
