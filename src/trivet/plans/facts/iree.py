"""What identifies IREE: its packages on disk, and the environment that they read."""

from __future__ import annotations

from trivet.plans.environment import LOADER, Rules
from trivet.plans.installed import Package

# Compiler and runtime are two wheels that share one folder; all of either counts.
PACKAGE = Package(
    module="iree.runtime",
    distributions=(
        *("iree-base-compiler", "iree-base-runtime"),
        *("iree-compiler", "iree-runtime"),  # their names before 2025
    ),
    libraries=("compiler/_mlir_libs/libIREECompiler.so", "_runtime_libs/_runtime*.so"),
    extra="iree",
)
COMPILER = "iree.compiler"

# Reads models and infers shapes before IREE sees them, so plans depend on it, too.
ONNX = Package(
    module="onnx", distributions=("onnx",), libraries=("onnx_cpp2py_export*.so",), extra="iree"
)

# Files that the compiler would run or load, known to the key by their paths only.
UNIDENTIFIED = (
    "IREE_LLVM_EMBEDDED_LINKER_PATH",
    "IREE_LLVM_SYSTEM_LINKER_PATH",
    "IREE_LLVM_WASM_LINKER_PATH",
    "IREE_LOAD_PLUGINS",
)

_OUTPUT = "only writes copies of what is compiled"

ENVIRONMENT = Rules(
    prefixes=("IREE_", "LLVM_", "MLIR_", "ONNX_"),
    names=LOADER,
    neutral={
        "IREE_SAVE_TEMPS": _OUTPUT,
        "IREE_PRESERVE_DYLIB_TEMP_FILES": _OUTPUT,
        "IREE_DEFAULT_DEVICE": "not read: the backend names its device",
        "LLVM_DISABLE_SYMBOLIZATION": "only the text of crash reports",
        "LLVM_ENABLE_SYMBOLIZER_MARKUP": "only the text of crash reports",
        "LLVM_SYMBOLIZER_PATH": "only the text of crash reports",
    },
)
