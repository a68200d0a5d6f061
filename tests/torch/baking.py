"""The process that compiles, with a compiler that writes weights into the code."""

from __future__ import annotations

from trivet.plans.backends import torch_child


def main() -> None:
    torch_child.WEIGHTS_OUTSIDE = {"aot_inductor.package_constants_in_so": False}  # type: ignore[misc]
    torch_child.main()
