"""What the identity of a 100 MB model costs, beside BLAKE3 over the bare file.

Both sides alternate in one process on files in the page cache; ``ratio`` is the median of the
ratios of neighbouring rounds. Memory is a share of the files. The key must cost at most 2x BLAKE3,
0.2x of the file in memory, and 3 ms when the model is unchanged.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from blake3 import blake3
from harness import alternate, arguments, child_environment, report, summary
from tests.support import onnx_models
from tests.support.memos import DictMemo

from trivet.plans.graph import GraphMemo, identify

HIGH_WATER = """
import sys
from pathlib import Path
from trivet.plans.graph import identify
def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
before = peak()
identify(Path(sys.argv[1]))
print(peak() - before)
"""


def main() -> None:
    """Measure and report."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--megabytes", type=int, default=100)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for label, (model, files) in _models(Path(folder), options.megabytes).items():
            gc.collect()
            row = {"model": label, "MB": sum(file.stat().st_size for file in files) / 1e6}
            row |= _changed(model, files, options.rounds)
            row["unchanged, us"] = _unchanged(model, options.rounds) * 1e6
            rows.append(row)
    report("graph_key", rows, options.json)


def _models(folder: Path, megabytes: int) -> dict[str, tuple[Path, list[Path]]]:
    """Label to model and the files that hold its bytes.

    Matrices are as wide as in a large, a small and a tiny network. The tiny one has far more nodes
    than any network of that size in use: it shows what a node costs.
    """
    found = {}
    for width in (1024, 384, 128):
        layers = max(1, round(megabytes * 1e6 / (4 * width * (width + 1))))
        proto = onnx_models.mlp(width, layers)
        path = onnx_models.save(proto, folder / f"{width}.onnx")
        found[f"{2 * layers} nodes, one file"] = (path, [path])
        if width == 1024:
            beside = onnx_models.external_data(folder / "external", proto)
            found[f"{2 * layers} nodes, external data"] = (
                beside,
                [folder / "external/weights.bin"],
            )
    return found


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _bare(files: list[Path]) -> None:
    for file in files:
        blake3().update_mmap(file).digest()


def _changed(model: Path, files: list[Path], rounds: int) -> dict[str, object]:
    """Identity without memo against BLAKE3 alone, and the memory it takes."""
    size = sum(file.stat().st_size for file in files)
    measured = alternate(
        {
            "blake3": lambda: _seconds(lambda: _bare(files)) * 1e3,
            "identify": lambda: _seconds(lambda: identify(model)) * 1e3,
        },
        rounds,
    )
    ratios = map(float.__truediv__, measured["identify"], measured["blake3"])
    tracemalloc.start()
    identify(model)
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    grown = subprocess.run(
        [sys.executable, "-c", HIGH_WATER, str(model)],
        check=True,
        capture_output=True,
        text=True,
        env=child_environment(),
    )
    return {
        "blake3, ms": summary(measured["blake3"])["median"],
        "identify, ms": summary(measured["identify"])["median"],
        "ratio": statistics.median(ratios),
        "least ratio": min(measured["identify"]) / min(measured["blake3"]),
        "allocated": allocated / size,
        "resident": int(grown.stdout) / size,
    }


def _unchanged(model: Path, rounds: int) -> float:
    """Seconds of one look-up of a known, unchanged model, in a memo that costs next to nothing."""
    known = DictMemo()
    memo = GraphMemo(known)
    while not known:
        memo.identify(model)  # a file just written is too new to be remembered
    times = []
    for _ in range(rounds):
        times.append(_seconds(lambda: [memo.identify(model) for _ in range(100)]) / 100)
    return statistics.median(times)


if __name__ == "__main__":
    main()
