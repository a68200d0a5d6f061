"""A model of more than 2 GB, more than a protobuf message can hold: weights in a file beside it.

Identified, compiled, and started again in new processes, beside a plain session. Needs 8 GB of
memory and 6 GB of disk.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import sides
from harness import arguments, report, run, summary
from models import bert_base

_IDENTIFY = """
import sys, time
from pathlib import Path
from trivet.plans.graph import identify
def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
before, start = peak(), time.perf_counter()
graph = identify(Path(sys.argv[1]))
print(time.perf_counter() - start, peak() - before, sum(each.size for each in graph.sources))
"""


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    try:
        path = folder / "large.onnx"
        bert_base(path, layers=70, external=True)
        seconds, megabytes, size = map(float, run(_IDENTIFY, path)[1].split())
        cold, first = run(sides.TRIVET, path, folder / "cache", "onnxruntime", "")
        warm, plain = [], []
        for _ in range(max(2, options.rounds // 2)):
            wall, printed = run(sides.TRIVET, path, folder / "cache", "onnxruntime", "")
            assert printed.split()[1:] == first.split()[1:]
            warm.append(wall)
            plain.append(run(sides.ORT_PLAIN, path)[0])
        row = {
            "GB": size / 1e9,
            "identify, s": seconds,
            "extra memory, MB": megabytes,
            "cold, s": cold,
            "warm, s": summary(warm)["median"],
            "plain session, s": summary(plain)["median"],
        }
    finally:
        shutil.rmtree(folder)
    report("large_model", [row], options.json)


if __name__ == "__main__":
    main()
