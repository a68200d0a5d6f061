from __future__ import annotations

import enum
from pathlib import Path

import msgspec
import pytest

from trivet.cli import terminal
from trivet.cli.output import Column, Output, Span, ago, counted, in_bytes, in_seconds
from trivet.errors import StoreFull
from trivet.warm.plain import plain


class Colour(enum.StrEnum):
    RED = "red"


class Inner(msgspec.Struct):
    digest: bytes
    folder: Path
    colours: tuple[Colour, ...]


def test_plain_turns_structs_bytes_paths_and_enums_into_json_types() -> None:
    value = {"a": Inner(b"\x01\xff", Path("/x"), (Colour.RED,)), "b": None, "c": 1.5}
    assert plain(value) == {
        "a": {"digest": "01ff", "folder": "/x", "colours": ["red"]},
        "b": None,
        "c": 1.5,
    }


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (98_300_000, "98.3 MB"), (3e12, "3.0 TB")],
)
def test_sizes_are_given_in_decimal_units(size: float, text: str) -> None:
    assert in_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.00014, "0.14 ms"), (0.031, "31 ms"), (1.416, "1.42 s"), (300, "5 min")],
)
def test_durations_keep_two_or_three_digits(seconds: float, text: str) -> None:
    assert in_seconds(seconds) == text


def test_ages_and_counts_are_in_words() -> None:
    assert [ago(each) for each in (3, 61, 7300, 200_000)] == ["now", "1 min", "2 h", "2 d"]
    assert [counted(1, "entry"), counted(2, "entry"), counted(0, "hit")] == [
        "1 entry",
        "2 entries",
        "0 hits",
    ]


def test_a_piped_table_is_aligned_and_has_no_codes_and_no_trailing_blanks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = [Column("name"), Column("size", right=True), Column("state", style="red")]
    Output(json=False).table(columns, [("a", "1", Span("ok", "green")), ("long", "1000", "")])
    assert capsys.readouterr().out == "name  size  state\na        1  ok\nlong  1000\n"


def test_a_long_cell_is_not_cut_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=False).table([Column("name")], [("x" * 500,)])
    assert "x" * 500 in capsys.readouterr().out


@pytest.mark.parametrize("width", [50, 72, 80, 90, 120])
def test_a_table_on_a_terminal_cuts_no_column(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    folded = [Column(name, fold=True) for name in ("model", "backend", "shapes")]
    columns = [Column("digest"), *folded, Column("size", right=True), Column("state")]
    row = ("a9ca646c", "resnet50-of-2026.onnx", "onnxruntime 1.32.0", "x=Nx3x224x224", "1 MB", "ok")
    terminal.print_table(columns, [row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.rstrip().endswith("size  state") for line in lines)


def test_an_error_goes_to_stderr_with_its_hint(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=False).error(StoreFull("no room", hint="make some"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no room\n  hint: make some\n"
