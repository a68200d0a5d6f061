"""What `trivet exec` adds to a warm run of a program that does nothing, and of real ones."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import alternate, arguments, report, run, run_guarded, summary

NOTHING = "pass"
TORCH = """
import torch
@torch.compile
def f(x):
    return torch.sin(x) * 2 + torch.cos(x)
assert f(torch.ones(64)).shape == (64,)
"""
JAX = """
import jax, jax.numpy as jnp
assert jax.jit(lambda x: jnp.sin(x) * 2 + jnp.cos(x))(jnp.ones(64)).shape == (64,)
"""


def main() -> None:
    """Measure and report."""
    chosen = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    rows: list[dict[str, object]] = []
    try:
        for name, code in (("nothing", NOTHING), ("torch.compile", TORCH), ("jax.jit", JAX)):
            cache, own = folder / f"{name}-cache", folder / f"{name}-own"
            env = {
                "TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"),
                "JAX_COMPILATION_CACHE_DIR": str(own / "jax"),
            }

            def bare(code: str = code, env: dict[str, str] = env) -> float:
                return run(code, **env)[0]

            def guarded(code: str = code, cache: Path = cache) -> float:
                return run_guarded(["--cache-dir", cache], code)[0]

            for each in (bare, guarded, guarded):
                each()
            sides: dict[str, Callable[[], float]] = {"alone": bare, "under trivet exec": guarded}
            figures = {
                side: summary(values) for side, values in alternate(sides, chosen.rounds).items()
            }
            alone = figures["alone"]["median"]
            for side, found in figures.items():
                rows.append(
                    {
                        "program": name,
                        "run": side,
                        "seconds": found["median"],
                        "low": found["low"],
                        "high": found["high"],
                        "adds": found["median"] - alone,
                        "ratio": found["median"] / alone,
                    }
                )
    finally:
        shutil.rmtree(folder)
    report("exec_overhead", rows, chosen.json)


if __name__ == "__main__":
    main()
