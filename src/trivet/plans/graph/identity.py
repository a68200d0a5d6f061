"""`identify`: from a model file to what it computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trivet.errors import ModelError
from trivet.plans.graph.files import FileChanged, Files, matches
from trivet.plans.model import GraphId

VERSION = 2  # raised whenever the same file gets another identity


def identify(path: Path) -> GraphId:
    """What the model in ``path`` computes: ONNX by ``.onnx``, OpenVINO IR by ``.xml``, programs of
    ``jax.export`` by ``.jaxexport``, of ``torch.export`` by ``.pt2``.

    Reads every byte that counts, external weights included, in pieces of 1 MiB.

    Raises:
        ModelError: the file is missing, malformed or of no known format, its external data is
            missing, too short or outside the model's folder, or it kept changing while being read.
    """
    read = _reader(path.suffix.lower())
    if read is None:
        raise ModelError(
            f"{str(path)!r} is of no known format",
            hint="models are .onnx files, .xml files of OpenVINO IR with a .bin beside them, "
            ".jaxexport files of jax.export, or .pt2 files of torch.export.save",
        )
    name = str(path.absolute())
    try:
        return _identify_once(name, read)
    except FileChanged:
        return _identify_once(name, read)


def unchanged(graph: GraphId) -> bool:
    """Whether all files that ``graph`` was read from are still what they were.

    Asked after a compile, it says whether what was hashed is what was compiled.
    """
    return all(matches(each) for each in graph.sources)


def _reader(suffix: str) -> Callable[[Files], GraphId] | None:
    # Imported here, since a start that finds its model in the memo reads none.
    if suffix == ".onnx":
        from trivet.plans.graph.onnx_model import identify_onnx

        return identify_onnx
    if suffix == ".xml":
        from trivet.plans.graph.openvino_ir import identify_ir

        return identify_ir
    if suffix == ".jaxexport":
        from trivet.plans.graph.jax_export import identify_jax

        return identify_jax
    if suffix == ".pt2":
        from trivet.plans.graph.torch_export import identify_torch_export

        return identify_torch_export
    return None


def _identify_once(name: str, read: Callable[[Files], GraphId]) -> GraphId:
    with Files(name) as files:
        try:
            graph = read(files)
        except ModelError as error:
            if files.changed():  # what looks malformed was half of one file and half of another
                raise FileChanged(f"{name!r} changes while it is being read") from None
            if repr(name) not in error.message:
                raise ModelError(f"{name!r}: {error.message}", hint=error.hint) from error
            raise
        if files.changed():
            raise FileChanged(f"{name!r} changes while it is being read")
        return graph
