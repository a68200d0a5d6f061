"""The two models that are served, the request that each gets, and how an answer reads."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
LINE = Path(__file__).with_name("line.pgm")
PACKAGED = "models/PP-OCRv6_rec_small.onnx"


class Job(NamedTuple):
    """A model and one request. ``shapes`` is what a user would tell Trivet about its inputs."""

    name: str
    title: str
    input: str
    shapes: str


RESNET = Job("resnet50", "ResNet-50, 102 MB", "x", "x=Nx3x224x224")
OCR = Job("ocr", "PP-OCRv6 text recognition, 21 MB", "x", "x=Nx3x48xW")
JOBS = {job.name: job for job in (RESNET, OCR)}


def build(job: Job, folder: Path) -> Path:
    """The model file, made or copied once and kept in ``folder``."""
    path = folder / f"{job.name}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    if job is RESNET:
        from examples.models import resnet50

        return resnet50(path)
    # The package is a carrier: nothing of it is imported, so nothing it depends on is needed.
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs a model: pip install --no-deps rapidocr")
    shutil.copyfile(Path(spec.origin).parent / PACKAGED, path)
    return path


def request(job: Job) -> bytes:
    """The body of the one request: a photograph's worth of noise, or a scanned line of text."""
    if job is OCR:
        return LINE.read_bytes()
    pixels = np.random.default_rng(7).integers(0, 256, (224, 224, 3), np.uint8)
    return pixels.tobytes()


def decode_request(job: Job, body: bytes) -> dict[str, Array]:
    """What the server does with the body: the model's input."""
    if job is OCR:
        width, height = (int(each) for each in body.split(b"\n", 2)[1].split())
        grey = np.frombuffer(body, np.uint8, offset=len(body) - width * height)
        line = grey.reshape(1, 1, height, width).astype(np.float32) / 127.5 - 1
        return {job.input: np.repeat(line, 3, axis=1)}
    pixels = np.frombuffer(body, np.uint8).reshape(1, 224, 224, 3)
    return {job.input: np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32) / 64 - 2}


def encode_answer(job: Job, outputs: Mapping[str, Array]) -> dict[str, Any]:
    """What the server sends back: the best class of each step, and a few numbers to compare."""
    scores = next(iter(outputs.values()))
    best = scores.argmax(-1).ravel()
    probe = scores.ravel()[:: max(1, scores.size // 64)]
    return {"best": best.tolist(), "probe": [float(each) for each in probe]}


def same_answer(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two answers are the same up to rounding."""
    if mine["best"] != theirs["best"]:
        return False
    return bool(np.allclose(mine["probe"], theirs["probe"], rtol=1e-3, atol=1e-3))


def read_answer(job: Job, answer: Mapping[str, Any], model: Path) -> str:
    """The answer for people: the text on the line, or the class."""
    if job is not OCR:
        return f"class {answer['best'][0]}"
    steps = answer["best"]
    letters = ["", *_characters(model), " "]
    kept = [step for i, step in enumerate(steps) if step and (i == 0 or steps[i - 1] != step)]
    return "".join(letters[step] for step in kept)


def _characters(model: Path) -> list[str]:
    """The recogniser's alphabet, which its file carries as metadata; extracted once."""
    alphabet = model.with_suffix(".alphabet.json")
    if not alphabet.exists():
        import onnx

        loaded = onnx.load(model)
        text = next(each.value for each in loaded.metadata_props if each.key == "character")
        alphabet.write_text(json.dumps(text.split("\n")))
    characters: list[str] = json.loads(alphabet.read_text())
    return characters
