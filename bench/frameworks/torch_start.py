"""PyTorch: process start to first result, whole process.

`torch.compile` cold, on its own warm folder and from a mega-cache on an empty folder; eager; a plan
of Trivet's on the host that compiled it, and on an empty host beside a shared folder; and
`torch.compile` under `trivet exec` on an empty host beside a shared folder.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import alternate, arguments, close, report, run, run_guarded, summary

HERE = str(Path(__file__).parent)

SETUP = """
import sys
import torch, torch_models
name, weights, program = sys.argv[1:4]
torch_models.write_weights(name, weights)
torch.export.save(torch.export.export(torch_models.build(name, weights),
                                      torch_models.inputs(name)), program)
"""

EAGER = """
import sys
import torch, torch_models
name, weights = sys.argv[1:3]
model = torch_models.build(name, weights)
{wrap}
with torch.no_grad():
    result = model(*torch_models.inputs(name))
print(*(f"{{each:.3f}}" for each in result.flatten()[:8].tolist()))
{after}
"""
PLAIN = EAGER.format(wrap="", after="")
COMPILED = EAGER.format(wrap="model = torch.compile(model)", after="")
SAVE_MEGA = EAGER.format(
    wrap="model = torch.compile(model)",
    after="open(sys.argv[3], 'wb').write(torch.compiler.save_cache_artifacts()[0])",
)
LOAD_MEGA = EAGER.format(
    wrap="torch.compiler.load_cache_artifacts(open(sys.argv[3], 'rb').read())\n"
    "model = torch.compile(model)",
    after="",
)

TRIVET = """
import sys
import numpy as np
from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import Torch
name, program, folder, shared = sys.argv[1:5]
cache = Cache.open(folder, shared=shared or None, strict=True)
plan = Plans(cache, Torch()).load(program)
if name == "ResNet-50":
    x = np.arange(3 * 224 * 224, dtype=np.float32).reshape(1, 3, 224, 224) % 7 / 7
else:
    x = np.arange(1, 129).reshape(1, 128)
result = next(iter(plan.run({plan.inputs[0].name: x}).values()))
print(*(f"{each:.3f}" for each in result.ravel()[:8].tolist()))
print(plan.source, file=sys.stderr)
"""

Side = Callable[[], float]


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "")
    options.set_defaults(rounds=5)
    chosen = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    rows: list[dict[str, object]] = []
    try:
        for name in ("ResNet-50", "BERT-base"):
            slow, fast = _sides(folder, name)
            measured = alternate(slow, 1, discard=0)
            measured |= alternate(fast, chosen.rounds)
            figures = {side: summary(values) for side, values in measured.items()}
            own = figures["torch.compile, own warm folder"]["median"]
            plan = figures["trivet plan"]["median"]
            for side, each in figures.items():
                rows.append(
                    {
                        "model": name,
                        "program": side,
                        "seconds": each["median"],
                        "low": each["low"],
                        "high": each["high"],
                        "runs": each["runs"],
                        "vs own warm": each["median"] / own,
                        "vs plan": each["median"] / plan,
                    }
                )
    finally:
        shutil.rmtree(folder)
    report("torch_start", rows, chosen.json)


def _sides(folder: Path, name: str) -> tuple[dict[str, Side], dict[str, Side]]:
    own = folder / name
    own.mkdir()
    weights, program, mega = own / "weights.pt", own / "program.pt2", own / "mega"
    fresh = (own / str(n) for n in itertools.count())
    shared, shared_exec = (f"file://{own / each}" for each in ("shared", "shared-exec"))

    def under_exec(host: Path) -> tuple[float, str]:
        options = ["--cache-dir", host, "--shared", shared_exec]
        return run_guarded(options, COMPILED, name, weights, PYTHONPATH=HERE)

    _run(SETUP, name, weights, program)
    expected = _run(PLAIN, name, weights)[1]
    warm = own / "inductor"
    _run(COMPILED, name, weights, TORCHINDUCTOR_CACHE_DIR=warm)
    _run(SAVE_MEGA, name, weights, mega, TORCHINDUCTOR_CACHE_DIR=next(fresh))
    _run(TRIVET, name, program, own / "host", shared)
    under_exec(own / "exec-host")

    def side(run_it: Callable[[], tuple[float, str]]) -> Side:
        def measure() -> float:
            seconds, printed = run_it()
            assert close(printed, expected), f"{printed} is not {expected}"
            return seconds

        return measure

    def compiled(inductor: Path) -> tuple[float, str]:
        return _run(COMPILED, name, weights, TORCHINDUCTOR_CACHE_DIR=inductor)

    def planned(host: Path, shared: str) -> tuple[float, str]:
        return _run(TRIVET, name, program, host, shared)

    slow = {
        "torch.compile, cold": side(lambda: compiled(next(fresh))),
        "torch.compile, mega-cache, empty folder": side(
            lambda: _run(LOAD_MEGA, name, weights, mega, TORCHINDUCTOR_CACHE_DIR=next(fresh))
        ),
    }
    fast = {
        "eager": side(lambda: _run(PLAIN, name, weights)),
        "torch.compile, own warm folder": side(lambda: compiled(warm)),
        "trivet plan": side(lambda: planned(own / "host", "")),
        "trivet plan, empty host": side(lambda: planned(next(fresh), shared)),
        "trivet exec torch.compile, warm host": side(lambda: under_exec(own / "exec-host")),
        "trivet exec torch.compile, empty host": side(lambda: under_exec(next(fresh))),
    }
    return slow, fast


def _run(code: str, *args: object, **env: object) -> tuple[float, str]:
    return run(code, *args, PYTHONPATH=HERE, **{name: str(value) for name, value in env.items()})


if __name__ == "__main__":
    main()
