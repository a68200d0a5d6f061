"""The examples do what they say: models, weight swap, and the demo's acts on a small model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from examples.demo import acts
from examples.demo.jobs import RESNET, Array, decode_request, encode_answer, request, same_answer
from examples.demo.report import save_picture
from examples.demo.ways import WAYS
from examples.models import bert_base, resnet50, swap_weights


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A relative of ResNet-50 with 4 MB."""
    return resnet50(tmp_path_factory.mktemp("models") / "s.onnx", blocks=(1, 1, 1, 1), width=16)


def logits(model: Path) -> Array:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    scores: Array = session.run(None, decode_request(RESNET, request(RESNET)))[0]
    return scores


def test_resnet50_has_the_parameters_of_the_paper(tmp_path: Path) -> None:
    model = onnx.load(resnet50(tmp_path / "full.onnx"))
    statistics = (".bn.mean", ".bn.var")
    learned = [w for w in model.graph.initializer if not w.name.endswith(statistics)]
    assert sum(int(np.prod(each.dims)) for each in learned) == 25_557_032


@pytest.mark.parametrize("external", [False, True])
def test_models_are_the_same_bytes_for_the_same_seed(tmp_path: Path, external: bool) -> None:
    small = {"layers": 1, "hidden": 32, "heads": 2, "vocabulary": 100, "external": external}

    def files(folder: str, seed: int) -> list[bytes]:
        bert_base(tmp_path / folder / "b.onnx", seed, **small)  # type: ignore[arg-type]
        return [each.read_bytes() for each in sorted((tmp_path / folder).iterdir())]

    assert files("a", 3) == files("b", 3) != files("c", 4)
    onnx.checker.check_model(tmp_path / "a" / "b.onnx", full_check=True)


def test_bert_ignores_what_the_mask_hides(tmp_path: Path) -> None:
    path = bert_base(tmp_path / "b.onnx", layers=2, hidden=64, heads=2, vocabulary=100)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    ids = np.arange(12, dtype=np.int64).reshape(2, 6)
    mask = np.array([[1, 1, 1, 1, 0, 0]] * 2, np.int64)
    other = ids.copy()
    other[:, 4:] = 99
    pooled = [
        session.run(["pooler_output"], {"input_ids": each, "attention_mask": mask})[0]
        for each in (ids, other)
    ]
    assert np.isfinite(pooled[0]).all()
    np.testing.assert_array_equal(pooled[0], pooled[1])
    assert np.abs(pooled[0][0] - pooled[0][1]).max() > 1e-3


def test_swapped_weights_are_seen_only_by_content_and_change_time(
    small: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(small.read_bytes())
    before, first = model.stat(), logits(model)
    assert swap_weights(model, seed=1) > 0
    after, second = model.stat(), logits(model)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert after.st_ctime_ns != before.st_ctime_ns
    assert np.isfinite(second).all()
    assert not np.allclose(first, second, atol=0.1)


def test_swapping_needs_weights_inside_the_file(tmp_path: Path) -> None:
    path = bert_base(tmp_path / "b.onnx", layers=1, hidden=32, heads=2, vocabulary=9, external=True)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="no float32 weights inside"):
        swap_weights(path)
    assert path.read_bytes() == content
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b.onnx", "b.onnx.data"]


def test_flipped_bits_lie_in_the_middle_of_the_largest_files(tmp_path: Path) -> None:
    large, little = tmp_path / "large", tmp_path / "little"
    large.write_bytes(bytes(4000))
    little.write_bytes(bytes(100))
    acts.flip_bits(tmp_path, 16)
    changed = [at for at, byte in enumerate(large.read_bytes()) if byte]
    assert 0 < len(changed) <= 16
    assert min(changed) >= 1000
    assert max(changed) < 3000
    assert little.read_bytes() == bytes(100)


def test_answers_are_compared_by_class_and_value() -> None:
    scores = np.linspace(0, 1, 1000, dtype=np.float32)[None]
    answer = encode_answer(RESNET, {"logits": scores})
    assert same_answer(answer, encode_answer(RESNET, {"logits": scores + 1e-5}))
    assert not same_answer(answer, encode_answer(RESNET, {"logits": scores + 0.1}))
    assert not same_answer(answer, encode_answer(RESNET, {"logits": scores[:, ::-1]}))


def test_demo_shows_trivet_right_where_the_rivals_are_wrong(small: Path, tmp_path: Path) -> None:
    ways = [way for way, kind in WAYS.items() if kind.backend == "ONNX Runtime"]
    stage = acts.Stage(RESNET, small, tmp_path, ways)

    def tick(_: str) -> None:
        pass

    acts.starts(stage, 1, tick)
    acts.swap(stage, tick)
    acts.flip(stage, tick)
    acts.eight(stage, 3, tick)
    mine = stage.rows["ort-trivet"]
    assert mine["answer"] == stage.rows["ort-plain"]["answer"]
    assert (mine["swap"], mine["flip"], mine["storm_compiles"]) == ("right", "recompiled", 1)
    assert (mine["storm_died"], mine["storm_wrong"]) == ([], 0)
    assert stage.rows["ort-saved"]["swap"] == "old answer"

    facts = dict.fromkeys(("cpus", "processor", "onnxruntime", "openvino", "trivet"), "?")
    jobs = {RESNET.name: stage.rows}
    save_picture(
        tmp_path / "demo.svg",
        {"machine": facts, "processes": 3, "repeats": 1, "jobs": jobs},
    )
    picture = (tmp_path / "demo.svg").read_text()
    assert [picture.count(f"{each}&#160;answer") for each in ("new", "old")] == [2, 1]
    assert "url(http" not in picture
