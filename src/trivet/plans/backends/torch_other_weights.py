"""Whether a plan takes all its weights from outside: it is run once with made-up ones.

Compilers write small or uniform constants into the code. They are told not to; this looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError
from trivet.plans.backends.torch_executable import TorchExecutable
from trivet.plans.backends.torch_package import LIBRARY

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

# Parts of an output's largest element. A weight that was left behind is off by a quarter of itself.
_LEAST = {"float32": 1e-3, "float64": 1e-3, "complex64": 1e-3, "complex128": 1e-3}
_LEAST_SHORT = 5e-2


def require_free_of_weights(
    torch: Any, folder: Path, program: Any, model: TorchExecutable, inputs: Arrays
) -> None:
    """`BackendError` unless the plan in ``folder`` follows ``model`` with other weights, too.

    Changes the weights of ``program``, which those of ``model`` are.
    """
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(folder / LIBRARY), 1)
    found = {**program.state_dict, **program.constants}
    names = runner.get_constant_names_to_original_fqns()
    bound = {name: found[qualified].detach() for name, qualified in names.items()}
    if bound:
        runner.update_constant_buffer(bound, False, True, True)
    plan = TorchExecutable(torch, runner.run, runner, model.inputs, model.outputs, {})
    plan.weights = bound
    _change(torch, program.state_dict)
    wrong = _unlike(plan.run(inputs), model.run(inputs))
    if wrong:
        raise BackendError(
            f"with other weights the compiled code gives another {wrong!r} than the model: weights "
            "are part of the code, so no plan can be shared"
        )


def _change(torch: Any, weights: Mapping[str, Any]) -> None:
    """Give every weight that is no integer another value; what was positive stays so."""
    done = set()
    with torch.no_grad():
        for tensor in weights.values():
            storage = tensor.untyped_storage().data_ptr()
            if tensor.dtype.is_floating_point and storage not in done:
                tensor.mul_(1.25).add_(0.0625)
            done.add(storage)


def _unlike(found: Arrays, expected: Arrays) -> str:
    return next((name for name in expected if not _close(found[name], expected[name])), "")


def _close(found: Array, expected: Array) -> bool:
    import numpy as np

    if found.shape != expected.shape or expected.dtype.kind not in "fc":
        return bool(np.array_equal(found, expected))
    least = _LEAST.get(str(expected.dtype), _LEAST_SHORT)
    bound = 1e-5 + least * np.abs(expected[np.isfinite(expected)]).max(initial=0)
    return bool(np.allclose(found, expected, rtol=0.0, atol=bound, equal_nan=True))
