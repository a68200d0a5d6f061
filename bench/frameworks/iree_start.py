"""IREE, BERT-base: compiling in every process, against a plan that is verified and mapped."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import alternate, arguments, report, run, summary
from sides import build_models

PROGRAM = """
import sys
import numpy as np
from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import Iree
plan = Plans(Cache.open(sys.argv[2], strict=True), Iree()).load(sys.argv[1])
ids = np.arange(1, 129, dtype=np.int64).reshape(1, 128)
x = np.arange(3 * 224 * 224, dtype=np.float32).reshape(1, 3, 224, 224) % 7 / 7
given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "x": x}
outputs = plan.run({each.name: given[each.name] for each in plan.inputs})
print(*(f"{each:.2f}" for each in next(iter(outputs.values())).ravel()[:8].tolist()))
"""


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "")
    options.set_defaults(rounds=2)
    chosen = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    rows: list[dict[str, object]] = []
    try:
        for name, path in build_models(folder).items():
            kept = folder / f"{name}-kept"
            run(PROGRAM, path, kept)

            def cold(path: Path = path) -> float:
                return run(PROGRAM, path, tempfile.mkdtemp(dir=folder))[0]

            def warm(path: Path = path, kept: Path = kept) -> float:
                return run(PROGRAM, path, kept)[0]

            measured = alternate({"compiling": cold}, chosen.rounds, discard=0)
            measured |= alternate({"trivet plan": warm}, 5)
            figures = {side: summary(values) for side, values in measured.items()}
            for side, each in figures.items():
                rows.append(
                    {
                        "model": name,
                        "program": side,
                        "seconds": each["median"],
                        "low": each["low"],
                        "high": each["high"],
                        "faster": figures["compiling"]["median"] / each["median"],
                    }
                )
    finally:
        shutil.rmtree(folder)
    report("iree_start", rows, chosen.json)


if __name__ == "__main__":
    main()
