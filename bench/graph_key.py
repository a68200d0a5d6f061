"""What the identity of a 100 MB model costs, beside BLAKE3 over the bare file.

    python bench/graph_key.py [--json results/graph_key.json] [--rounds 9] [--megabytes 100]

Both sides alternate in one process on files in the page cache; figures are medians of wall time,
and the ratio is the median of the ratios of neighbouring rounds. Needs ``onnx`` and ``numpy``.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from blake3 import blake3
from tests.support import onnx_models

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


class Dictionary(dict[bytes, bytes]):
    """A memo in memory: what remembering itself costs."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value


def models(folder: Path, megabytes: int) -> dict[str, tuple[Path, list[Path]]]:
    """Label to model and the files that hold its bytes.

    Matrices are as wide as in a large, a small and a tiny network. The tiny one has far more nodes
    than any network of that size in use: it shows what a node costs, and has no target.
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


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def bare(files: list[Path]) -> None:
    for file in files:
        blake3().update_mmap(file).digest()


def changed(model: Path, files: list[Path], rounds: int) -> dict[str, Any]:
    """Identity without memo against BLAKE3 alone; extra memory as a share of the files."""
    size = sum(file.stat().st_size for file in files)
    bare(files)
    identify(model)
    pairs = [(timed(lambda: bare(files)), timed(lambda: identify(model))) for _ in range(rounds)]
    tracemalloc.start()
    identify(model)
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    grown = subprocess.run(
        [sys.executable, "-c", HIGH_WATER, str(model)], check=True, capture_output=True, text=True
    )
    return {
        "bytes": size,
        "blake3_seconds": statistics.median(each[0] for each in pairs),
        "identify_seconds": statistics.median(each[1] for each in pairs),
        "ratio": statistics.median(mine / alone for alone, mine in pairs),
        "allocated_share": allocated / size,
        "resident_share": int(grown.stdout) / size,
    }


def unchanged(model: Path, rounds: int) -> float:
    """Seconds of one look-up of a known, unchanged model."""
    known = Dictionary()
    memo = GraphMemo(known)
    while not known:
        memo.identify(model)  # a file just written is too new to be remembered
    times = []
    for _ in range(rounds):
        times.append(timed(lambda: [memo.identify(model) for _ in range(100)]) / 100)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=100)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for label, (model, files) in models(Path(folder), options.megabytes).items():
            gc.collect()
            results[label] = changed(model, files, options.rounds)
            results[label]["memo_seconds"] = unchanged(model, options.rounds)
    head = f"{'model':32} {'MB':>6} {'blake3':>9} {'identify':>9} {'ratio':>6} "
    print(head + f"{'alloc':>7} {'RSS':>7} {'unchanged':>10}")
    for label, each in results.items():
        print(
            f"{label:32} {each['bytes'] / 1e6:6.1f} {each['blake3_seconds'] * 1e3:6.1f} ms "
            f"{each['identify_seconds'] * 1e3:6.1f} ms {each['ratio']:5.2f}x "
            f"{each['allocated_share']:6.3f}x {each['resident_share']:6.3f}x "
            f"{each['memo_seconds'] * 1e6:7.1f} us"
        )
    print(
        "must reach, but for the last: ratio at most 2x; memory at most 0.2x of the file; "
        "unchanged under 3 ms"
    )
    if options.json:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        options.json.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
