"""JAX, an encoder like BERT-base: process start to first result, whole process.

JAX's own persistent cache, where it was filled and after its folder moved; the same program under
`trivet exec`, also with a moved cache folder; and a plan of Trivet's, made from an export.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import alternate, arguments, close, report, run, run_guarded, summary

MODEL = """
import numpy as np
W, H, L = 768, 12, 12
def shapes():
    layer = {"qkv": (W, 3 * W), "out": (W, W), "up": (W, 4 * W), "down": (4 * W, W)}
    layers = {f"{n}.{k}": s for n in range(L) for k, s in layer.items()}
    return {"words": (30522, W), "places": (512, W), **layers}
def parameters():
    blob = np.load(weights, mmap_mode="r")
    found, start = {}, 0
    for name, shape in shapes().items():
        size = int(np.prod(shape))
        found[name] = blob[start:start + size].reshape(shape)
        start += size
    return found
def normalise(jnp, x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
def predict(p, ids):
    import jax, jax.numpy as jnp
    x = normalise(jnp, p["words"][ids] + p["places"][: ids.shape[1]])
    for n in range(L):
        b, s, _ = x.shape
        q, k, v = jnp.moveaxis((x @ p[f"{n}.qkv"]).reshape(b, s, 3, H, W // H), (2, 3), (0, 2))
        a = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / np.float32((W // H) ** 0.5), -1)
        x = normalise(jnp, x + jnp.moveaxis(a @ v, 1, 2).reshape(b, s, W) @ p[f"{n}.out"])
        x = normalise(jnp, x + jax.nn.gelu(x @ p[f"{n}.up"]) @ p[f"{n}.down"])
    return x
ids = np.arange(1, 129, dtype=np.int32).reshape(1, 128)
def done(y):
    print(*(f"{each:.3f}" for each in np.asarray(y).ravel()[:8].tolist()))
"""

SETUP = (
    "import sys\nweights, target = sys.argv[1:3]\n"
    + MODEL
    + """
size = sum(int(np.prod(shape)) for shape in shapes().values())
np.save(weights, np.random.default_rng(0).normal(0, 0.05, size).astype(np.float32))
import jax, jax.export
exported = jax.export.export(jax.jit(predict), platforms=["cpu"])(parameters(), ids)
open(target, "wb").write(exported.serialize())
"""
)

PLAIN = (
    "import sys\nweights, folder = sys.argv[1:3]\n"
    + MODEL
    + """
import jax
if folder:
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
done(jax.jit(predict)(parameters(), ids))
"""
)

TRIVET = (
    "import sys\nweights, exported, cache = sys.argv[1:4]\n"
    + MODEL
    + """
from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import Jax
plan = Plans(Cache.open(cache, strict=True), Jax()).load(exported)
given = {f"arg0.{name}": value for name, value in parameters().items()}
given = {each.name: given.get(each.name, ids) for each in plan.inputs}
done(plan.run(given)["out"])
"""
)


def main() -> None:
    """Measure and report."""
    chosen = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    weights, exported = folder / "weights.npy", folder / "bert.jaxexport"
    own, cache, guarded = folder / "own", folder / "cache", folder / "guarded"

    def under_exec(at: Path) -> tuple[float, str]:
        return run_guarded(["--cache-dir", at], PLAIN, weights, "")

    try:
        run(SETUP, weights, exported)
        expected = run(PLAIN, weights, "")[1]
        run(PLAIN, weights, own)
        run(TRIVET, weights, exported, cache)
        under_exec(guarded)
        under_exec(guarded)  # the first run learns, the second is as all later ones

        def right(measured: tuple[float, str]) -> float:
            seconds, printed = measured
            assert close(printed, expected), f"{printed} is not {expected}"
            return seconds

        def moved(
            source: Path, measure: Callable[[Path], tuple[float, str]]
        ) -> Callable[[], float]:
            def run_there() -> float:
                target = Path(tempfile.mkdtemp(dir=folder)) / "moved"
                shutil.copytree(source, target)
                try:
                    return right(measure(target))
                finally:
                    shutil.rmtree(target)

            return run_there

        measured = alternate(
            {
                "jit, no cache": lambda: right(run(PLAIN, weights, "")),
                "its own cache": lambda: right(run(PLAIN, weights, own)),
                "its own cache, moved": moved(own, lambda at: run(PLAIN, weights, at)),
                "trivet exec": lambda: right(under_exec(guarded)),
                "trivet exec, moved": moved(guarded, under_exec),
                "trivet plan": lambda: right(run(TRIVET, weights, exported, cache)),
                "trivet plan, moved": moved(cache, lambda at: run(TRIVET, weights, exported, at)),
            },
            chosen.rounds,
        )
        figures = {name: summary(values) for name, values in measured.items()}
        warm = figures["its own cache"]["median"]
        report(
            "jax_start",
            [
                {
                    "program": name,
                    "seconds": each["median"],
                    "low": each["low"],
                    "high": each["high"],
                    "vs own cache": each["median"] / warm,
                }
                for name, each in figures.items()
            ],
            chosen.json,
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
