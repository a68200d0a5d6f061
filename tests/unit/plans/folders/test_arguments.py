"""What a program was told on its command line, in the key."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.plans.folders.test_dependencies import TOY, install, python

from trivet import Cache
from trivet.cache import ArtifactLease, Hit
from trivet.cli.words import field_in_words
from trivet.plans.folders.arguments import MANY, argument_fields
from trivet.plans.folders.explain import FolderLookup, explain
from trivet.plans.folders.frameworks import KNOWN, VLLM
from trivet.plans.folders.interpreter import arguments_of

NEUTRAL = {"--port": 1, "--quiet": 0, "--api-key": MANY}
BASE = ["serve", "model", "--spec", "7"]


def fields(*words: str, cwd: str = "/") -> object:
    return argument_fields(words, NEUTRAL, cwd)


def test_options_are_told_by_name_and_their_order_counts() -> None:
    assert fields("serve", "model", "--spec", "7", "--x=1", "--spec", "9") == {
        "arguments": {
            "": ("serve", "model"),
            "--spec": "7",
            "--x": "=1",
            "--spec (2)": "9",
        },
        "order_of_arguments": ("", "--spec", "--x", "--spec (2)"),
    }
    assert fields("--no-x", "--x") != fields("--x", "--no-x")


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "8000"],
        ["--port=8000"],
        ["--quiet"],
        ["--api-key", "one", "two"],
        ["--api_key", "one"],
        ["--quiet", "--port", "1"],
    ],
    ids=" ".join,
)
def test_an_option_on_which_nothing_depends_is_left_out(words: list[str]) -> None:
    assert fields(*BASE, *words) == fields(*BASE)
    assert fields("serve", "model", *words, "--spec", "7") == fields(*BASE)


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "model", "--spec", "9"],
        ["serve", "other", "--spec", "7"],
        ["serve", "model", "--spec=7"],
        ["serve", "model", "--spec", "7", "--new-switch"],
        ["serve", "model", "--spec", "7", "--new", "1"],
        ["serve", "model", "--spec", "7", "8"],
        ["model", "serve", "--spec", "7"],
        ["serve", "model", "--spec", "--port", "1", "7"],
        ["serve", "model", "--spec", "7", "--port", "1", "2"],
        ["serve", "model", "--spec", "7", "--quiet", "2"],
        ["serve", "model", "--spec", "7", "--port=1", "2"],
        ["serve", "model", "--spec", "7", "--ports", "1"],
        ["serve", "model", "--spec", "\udcf6"],
        [],
    ],
    ids=lambda words: " ".join(words).encode(errors="backslashreplace").decode(),
)
def test_every_other_argument_counts(words: list[str]) -> None:
    assert fields(*words) != fields(*BASE)


@pytest.mark.parametrize("form", ["--config {}", "--config={}"])
def test_a_file_that_configures_counts_by_content_wherever_it_lies(
    form: str, tmp_path: Path
) -> None:
    for name, content in (("a", "x: 1"), ("b", "x: 1"), ("c", "x: 2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "serve.yaml").write_text(content)
    first, moved, edited = (
        fields("serve", *form.format(f"{name}/serve.yaml").split(), cwd=str(tmp_path))
        for name in ("a", "b", "c")
    )
    assert first == moved
    assert first != edited
    absent = form.format("d/serve.yaml").split()
    assert fields(*absent, cwd=str(tmp_path)) == fields(*absent)


def test_vllm_is_told_apart_by_its_arguments_and_keeps_no_secret() -> None:
    """Its own key lacks the number of speculative tokens, among others."""
    assert VLLM.neutral_arguments is not None
    seven, nine, moved = (
        argument_fields(["serve", "m", *words], VLLM.neutral_arguments, "/")
        for words in (
            ["--spec-tokens", "7"],
            ["--spec-tokens", "9"],
            ["--spec-tokens", "7", "--host", "::", "--port", "1", "--api-key", "s", "t",
             "--served-model-name", "a", "b", "--hf-token", "s", "--uvicorn-log-level=info"],
        )
    )  # fmt: skip
    assert seven != nine
    assert seven == moved


def test_where_a_frameworks_own_key_holds_the_graph_arguments_do_not_count() -> None:
    assert [each.name for each in KNOWN if each.neutral_arguments is not None] == ["vllm"]


def test_the_argument_that_differs_is_named(tmp_path: Path) -> None:
    install(tmp_path / "site", b"one")
    framework = msgspec.structs.replace(TOY, neutral_arguments={"--port": 1})

    def look(command: str) -> FolderLookup:
        (found,) = explain(
            cache, [framework], python(tmp_path / "site"), {}, command=command.split()
        )
        return found

    with Cache.open(tmp_path / "c", strict=True) as cache:
        key = look("toy serve --spec 7").key
        assert key is not None
        held = cache.acquire_files(key, wait=0.0)
        assert isinstance(held, ArtifactLease)
        (held.staging / "compiled").write_text("code")
        held.commit()
        assert isinstance(look("toy serve --spec 7 --port 8000").found, Hit)
        near = look("toy serve --spec 9").nearest
        assert near is not None
        assert [(x.name, x.mine, x.theirs) for x in near.differences] == [
            ("arguments.--spec", "9", "7")
        ]
        assert field_in_words("arguments.--spec") == "an argument of the program"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("vllm serve m --x 1", "serve m --x 1"),
        ("/usr/bin/python3.11 serve.py --x 1", "--x 1"),
        ("python -u -X dev -W error serve.py -m x", "-m x"),
        ("python -m vllm.server --x 1", "--x 1"),
        ("python -um vllm.server --x", "--x"),
        ("python -c code -c x", "-c x"),
        ("python - x", "x"),
        ("python", ""),
    ],
)
def test_arguments_are_what_the_program_is_given(command: str, arguments: str) -> None:
    assert arguments_of(command.split()) == arguments.split()
