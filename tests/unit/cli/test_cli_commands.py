"""What each command prints and returns, on a real cache folder and a real backend."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from tests.support import onnx_models
from tests.support.cli import Shell
from tests.support.damage import flip_bit

from trivet.cache import Cache
from trivet.codecs import Bytes
from trivet.keys import Key
from trivet.plans import maker

RULE = "x=N{1,8}x16"


def flip_a_bit(cache: Path) -> None:
    """In the weights or the graph of the first stored plan."""
    file = sorted(cache.glob("artifacts/*/*/files/plan/*"))[0]
    flip_bit(file)


def put(cache: Path, count: int) -> None:
    with Cache.open(cache, strict=True) as opened:
        for i in range(count):
            opened.get_or_compute(Key("value/1", {"i": i}), lambda: b"v", Bytes(), tags=["t=1"])


def test_run_compiles_then_hits_and_says_so(shell: Shell, model: Path) -> None:
    cold = shell("run", model, "--json").json()
    warm = shell("run", model, "--json").json()
    assert (cold["source"], cold["reason"], warm["source"]) == ("compiled", "absent", "cache")
    assert cold["key"] == warm["key"]
    assert cold["outputs"] == warm["outputs"] == {"y": {"dtype": "float32", "shape": [1, 16]}}
    assert {"process start", "identify", "compile", "first run"} <= cold["phases"].keys()
    assert "compile" not in warm["phases"]


def test_run_on_given_inputs_writes_what_the_model_gives(
    shell: Shell, model: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    output = tmp_path / "out.npz"
    done = shell("run", model, "--input", f"x={tmp_path / 'x.npy'}", "--output", output)
    assert done.code == 0
    import onnxruntime

    expected = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    with np.load(output) as written:
        np.testing.assert_allclose(written["y"], expected, rtol=1e-4, atol=1e-5)


def test_made_up_inputs_agree_with_given_ones_in_size(shell: Shell, tmp_path: Path) -> None:
    from onnx import helper

    two = onnx_models.model(
        [helper.make_node("Add", ["a", "b"], ["file"])],  # `numpy.savez` has no room for this name
        [onnx_models.tensor("a", ["N", 4]), onnx_models.tensor("b", ["N", 4])],
        [onnx_models.tensor("file", ["N", 4])],
    )
    model = onnx_models.save(two, tmp_path / "add.onnx")
    np.save(tmp_path / "a.npy", np.ones((5, 4), np.float32))
    output = tmp_path / "out.npz"
    done = shell("run", model, "--input", f"a={tmp_path / 'a.npy'}", "--output", output)
    assert done.code == 0, done.err
    with np.load(output, allow_pickle=False) as written:
        assert written["file"].shape == (5, 4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--input", "z=missing.npy"], "no input 'z'"),
        (["--input", "x=missing.npy"], "can't be read"),
        (["--shapes", "x=N{2,"], "shape rule"),
        (["--option", "level=most"], "level"),
    ],
)
def test_run_explains_what_is_wrong_with_its_arguments(
    shell: Shell, model: Path, arguments: list[str], says: str
) -> None:
    done = shell("run", model, *arguments)
    assert done.code == 1
    assert says in done.err
    assert "Traceback" not in done.err


def test_warm_makes_every_variant_and_a_second_time_none(shell: Shell, model: Path) -> None:
    first = shell("warm", model, "--shapes", RULE, "--json").json()["variants"]
    second = shell("warm", model, "--shapes", RULE, "--json").json()["variants"]
    assert [each["result"] for each in first] == ["compiled", "compiled"]
    assert [each["result"] for each in second] == ["cache", "cache"]
    assert [each["shapes"] for each in first] == ["x=1x16", "x=8x16"]


def test_warm_names_what_is_not_worth_keeping_and_does_not_fail_for_it(
    shell: Shell, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "_COLD_READ", 1.0)  # bytes per second: no plan is worth that
    for _ in range(2):  # made, then known from the record
        done = shell("warm", model)
        assert done.code == 0
        assert "runs uncompiled: NotWorthKeeping: compiling takes" in " ".join(done.out.split())
        assert "0 compiled, 0 failed, 1 not worth keeping" in done.out


def test_warm_fails_only_for_what_is_required(shell: Shell, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    optional = "[[model]]\npath = 'net.onnx'\n[[model]]\npath = 'no.onnx'\nrequired = false\n"
    file.write_text(optional)
    done = shell("warm", file)
    assert done.code == 0
    assert "no.onnx failed (not required): there is no model file" in done.out
    file.write_text(optional.replace("false", "true"))
    assert shell("warm", file).code == 1


def test_warm_with_a_plan_file_takes_no_options(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("model = []")
    assert shell("warm", tmp_path / "plan.toml", "--option", "threads=2").code == 2


def test_why_names_the_field_that_differs(shell: Shell, model: Path) -> None:
    shell("warm", model, "--shapes", RULE)
    assert shell("why", model, "--shapes", RULE).code == 0
    done = shell("why", model, "--shapes", RULE, "--option", "level=basic", "--json")
    assert done.code == 3
    verdict = done.json()["variants"][0]
    assert (verdict["hit"], verdict["reason"]) == (False, "absent")
    (difference,) = verdict["nearest"]["differences"]
    assert (difference["field"], difference["mine"], difference["theirs"]) == (
        "level",
        "basic",
        "all",
    )


def test_why_compares_with_the_same_backend_and_model_if_it_can(shell: Shell, model: Path) -> None:
    other = onnx_models.save(onnx_models.conv_net(), model.with_name("other.onnx"))
    shell("run", other, "--option", "level=basic")
    shell("run", model, "--backend", "openvino")

    def fields(*arguments: object) -> set[str]:
        nearest = shell("why", *arguments, "--json").json()["variants"][0]["nearest"]
        return {each["field"] for each in nearest["differences"]}

    # Fewer fields would differ from the plan of the other model.
    many = [f"--option=session.x{i}=1" for i in range(9)]
    assert fields(other, *many) == {"level", *(f"options.session.x{i}" for i in range(9))}
    assert "graph.structure" in fields(model, "--option", "level=basic")
    shell("drop", "--model", other, "--yes")
    asked = shell("why", model)
    assert re.search(r"backend\.name +onnxruntime +openvino", asked.out)
    assert "backend.libraries" not in asked.out
    assert "custom_op_libraries" not in asked.out


def test_why_sees_damage_without_moving_anything(shell: Shell, model: Path) -> None:
    shell("run", model)
    flip_a_bit(shell.cache)
    for _ in range(2):
        done = shell("why", model)
        assert done.code == 3
        assert "the stored plan is damaged" in done.out


def test_ls_filters_and_sorts(shell: Shell, model: Path) -> None:
    shell("warm", model, "--shapes", RULE, "--release", "7")
    shell("run", model, "--backend", "openvino")

    def listed(*arguments: str) -> list[dict[str, object]]:
        entries: list[dict[str, object]] = shell("ls", *arguments, "--json").json()["entries"]
        return entries

    assert len(listed()) == 3
    assert {each["backend"] for each in listed("--backend", "openvino")} == {"openvino"}
    assert {each["shapes"] for each in listed("--tag", "release=7")} == {"x=1x16", "x=8x16"}
    assert listed("--model", "other") == []
    sizes = [each["size"] for each in listed("--sort", "size")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(listed("--space", "all")) > 3
    assert all(each["model"] == "net.onnx" and each["state"] == "ok" for each in listed())


def test_show_gives_key_descriptor_and_files(shell: Shell, model: Path) -> None:
    key = shell("run", model, "--json").json()["key"]
    shown = shell("show", key[:10], "--json").json()
    assert shown["digest"] == key
    assert shown["key"]["shapes"] == {"x": ["N", 16]}
    assert "canary" in [each["name"] for each in shown["files"]]
    text = shell("show", key[:10])
    assert "graph.weights" in text.out
    assert "plan/model.onnx" in text.out


def test_show_of_nothing_is_not_found_and_of_several_lists_them(shell: Shell) -> None:
    put(shell.cache, 17)  # more than there are first digits
    listed = shell("ls", "--space", "value", "--json").json()["entries"]
    firsts = [each["digest"][0] for each in listed]
    shared = next(each for each in firsts if firsts.count(each) > 1)
    several = shell("show", shared)
    assert several.code == 1
    matching = [each["digest"] for each in listed if each["digest"][0] == shared]
    assert all(digest[:12] in several.err for digest in matching)
    assert shell("show", "not-hex").code == 3


def test_verify_reports_damage_and_moves_it(shell: Shell, model: Path) -> None:
    shell("run", model)
    assert shell("verify").code == 0
    flip_a_bit(shell.cache)
    found = shell("verify", "--json")
    assert found.code == 1
    assert [each["model"] for each in found.json()["damaged"]] == ["net.onnx"]
    assert shell("verify").code == 0
    assert shell("ls", "--json").json()["entries"] == []
    assert shell("run", model, "--json").json()["source"] == "compiled"


def test_gc_removes_what_was_invalidated(shell: Shell, model: Path) -> None:
    shell("run", model, "--release", "7")
    assert shell("drop", "--tag", "release=7", "--yes").code == 0
    assert shell("ls", "--json").json()["entries"][0]["state"] == "invalidated"
    done = shell("gc", "--json").json()
    assert done["removed"]["invalidated"] >= 1
    assert done["bytes_after"] < done["bytes_before"]
    assert shell("ls", "--json").json()["entries"] == []


def test_drop_by_digest_by_model_and_of_everything(shell: Shell, model: Path) -> None:
    key = shell("run", model, "--json").json()["key"]
    assert shell("drop", key[:12], "--yes", "--json").json() == {"dropped": [key]}
    assert shell("drop", key[:12], "--yes").code == 3
    shell("warm", model, "--shapes", RULE)
    other = onnx_models.save(onnx_models.mlp(), model.with_name("other.onnx"))
    shell("run", other)
    assert len(shell("drop", "--model", model, "--yes", "--json").json()["dropped"]) == 2
    left = shell("ls", "--json").json()["entries"]
    assert [each["model"] for each in left] == ["other.onnx"]
    assert shell("drop", "--all", "--yes").code == 0
    assert shell("ls", "--space", "all", "--json").json()["entries"] == []


def test_drop_wants_one_thing_and_somebody_to_ask(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shell.cache, 1)
    assert shell("drop").code == 2
    assert shell("drop", "--all", "--tag", "a", "--yes").code == 2
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert shell("drop", "--all").code == 2
    assert len(shell("ls", "--space", "value", "--json").json()["entries"]) == 1


@pytest.mark.parametrize("name", ["ls", "stats", "verify", "gc"])
def test_a_folder_that_is_not_there_is_an_error_and_not_made(shell: Shell, name: str) -> None:
    done = shell(name, "--json")
    assert done.code == 1
    assert "there is no cache folder" in done.json()["error"]["message"]
    assert not shell.cache.exists()
