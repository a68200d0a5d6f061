"""Identity of a saved PyTorch program (``torch.export.save``), read without PyTorch.

Nothing is unpickled. Parameters and persistent buffers are weights: contents that a fine-tuned
version changes. Constants of the code and buffers that the state dict does not hold are structure,
by content, and so are small weights of integers, which may be shapes or axes. Example inputs and
extra files are metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from blake3 import blake3

from trivet.errors import ModelError
from trivet.plans.graph.files import Files
from trivet.plans.graph.pt2_archive import Archive
from trivet.plans.graph.tokens import Tokens
from trivet.plans.graph.torch_names import GraphNames
from trivet.plans.graph.torch_signature import DTYPES, inputs_of, outputs_of
from trivet.plans.model import GraphId, TensorInfo

_PROGRAM, _CONFIG, _RECORD, _NAME, _CONTENT = range(1, 6)
_FOLDERS = {"weights": "data/weights/", "constants": "data/constants/"}
_MODEL = "models/"
_NOTES = ("data/sample_inputs/", "extra/", ".data/")
_SMALL = 1 << 10


class Payload(NamedTuple):
    """A tensor of the program and where its bytes are.

    Attributes:
        name: fully qualified, as in the state dict.
        record: name of the record that holds its storage, maybe with others'.
        meta: ``PayloadMeta`` of the export schema.
        is_constant: a constant of the code or a buffer that is no part of the state dict.
    """

    name: str
    record: str
    meta: dict[str, Any]
    is_constant: bool


def identify_torch_export(files: Files) -> GraphId:
    """Identity of the exported program in the archive that is the main file.

    Raises `ModelError` for bytes that are no such archive, for more or less than one program in it,
    and for inputs and outputs that are no tensors.
    """
    archive = Archive(files)
    name = program_name(archive)
    document = archive.json(f"{_MODEL}{name}.json")
    try:
        return _identify(files, archive, document, payloads(archive, name))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError) as error:
        raise ModelError(f"the program is malformed: {type(error).__name__} {error}") from error


def read_signature(model: Path) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs and outputs of the program in ``model``; its weights are not read.

    Raises `ModelError`.
    """
    with Files(str(model.absolute())) as files:
        archive = Archive(files)
        module = archive.json(f"{_MODEL}{program_name(archive)}.json")["graph_module"]
        return inputs_of(module), outputs_of(module)


def program_name(archive: Archive) -> str:
    """Name of the one program in the archive. Raises `ModelError` unless there is just one."""
    programs = [
        each.removeprefix(_MODEL).removesuffix(".json")
        for each in archive.records
        if each.startswith(_MODEL) and each.endswith(".json")
    ]
    if len(programs) != 1:
        raise ModelError(
            f"{archive.reader.path!r} holds {len(programs)} exported programs, not one",
            hint="save one program with torch.export.save; a compiled package is no model",
        )
    return programs[0]


def payloads(archive: Archive, name: str) -> list[Payload]:
    """All tensors and objects of the program, weights first, sorted by name."""
    found: list[Payload] = []
    for kind, folder in _FOLDERS.items():
        if f"{folder}{name}.pt" in archive.records:
            raise ModelError(
                f"{archive.reader.path!r} holds its {kind} in an old, pickled form",
                hint="load and save it again with a newer PyTorch",
            )
        config = archive.json(f"{folder}{name}_{kind}_config.json")["config"]
        for fqn in sorted(config):
            meta = config[fqn]
            record = f"{folder}{meta['path_name']}"
            found.append(Payload(fqn, record, meta, kind == "constants"))
    return found


def weights_digest(found: list[Payload], digests: dict[str, bytes]) -> bytes:
    """`GraphId.weights`, from the BLAKE3 of every record, constants included."""
    out = Tokens("trivet 2026 graph weights torch-export v1")
    for each in found:
        out.data(_NAME, each.name.encode())
        out.data(_RECORD, digests[each.record])
    return out.finish()


def _identify(
    files: Files, archive: Archive, document: dict[str, Any], found: list[Payload]
) -> GraphId:
    module = document["graph_module"]
    inputs, outputs = inputs_of(module), outputs_of(module)
    names = GraphNames()
    digests = {each.record: archive.digest(each.record) for each in found}
    structure = Tokens("trivet 2026 graph structure torch-export v1")
    structure.data(_PROGRAM, _json(_program(document, names)))
    structure.data(_NAME, _json([[each.name for each in tensors] for tensors in (inputs, outputs)]))
    _put_config(structure, archive, found, digests)
    known = {each.record for each in found}
    metadata = Tokens("trivet 2026 graph metadata torch-export v1")
    for name in sorted(archive.records.keys() - known):
        if name.startswith(_NOTES):
            metadata.data(_NAME, name.encode())
            metadata.data(_CONTENT, archive.digest(name))
        elif not name.startswith(_MODEL) and not name.endswith("_config.json"):
            structure.data(_NAME, name.encode())
            structure.data(_CONTENT, archive.digest(name))
    metadata.data(_PROGRAM, blake3(_json(module["graph"]["nodes"])).digest())
    return GraphId(
        format="torch-export",
        structure=structure.finish(),
        weights=weights_digest(found, digests),
        metadata=metadata.finish(),
        inputs=inputs,
        outputs=outputs,
        operators=tuple(sorted(map(_operator, names.operators))),
        sources=tuple(files.sources.values()),
    )


def _program(document: dict[str, Any], names: GraphNames) -> dict[str, Any]:
    """The program as it counts: all but made-up names, notes, and the tree of its modules."""
    module = dict(document["graph_module"])
    module["graph"] = names.graph(module["graph"])
    signature = module["signature"]
    module["signature"] = {
        key: names.specs(value) if key.endswith("_specs") else value
        for key, value in signature.items()
    }
    module["module_call_graph"] = [each for each in module["module_call_graph"] if not each["fqn"]]
    return {**document, "graph_module": module}


def _put_config(
    out: Tokens, archive: Archive, found: list[Payload], digests: dict[str, bytes]
) -> None:
    """Count what the tensors are: type, shape, strides, and which of them share memory."""
    order: dict[str, int] = {}
    for each in found:
        start, end = archive.range(each.record)
        out.data(_NAME, each.name.encode())
        out.numbered(_RECORD, order.setdefault(each.record, len(order)), _CONFIG, _config(each))
        out.number(_CONTENT, end - start)
        if each.is_constant or (end - start <= _SMALL and _is_integers(each)):
            out.data(_CONTENT, digests[each.record])


def _config(payload: Payload) -> bytes:
    return _json({key: value for key, value in payload.meta.items() if key != "path_name"})


def _is_integers(payload: Payload) -> bool:
    meta = payload.meta.get("tensor_meta") or {}
    return DTYPES.get(meta.get("dtype", 0), "").startswith(("int", "uint", "bool"))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _operator(target: str) -> str:
    """``torch.ops.aten.add.Tensor`` is ``aten::add.Tensor``."""
    domain, _, name = target.removeprefix("torch.ops.").partition(".")
    return f"{domain}::{name}" if target.startswith("torch.ops.") else f"python::{target}"
