"""Weights read from the model's own file, verified, and given to a plan that holds none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blake3 import blake3

from trivet.errors import BackendError, ModelError
from trivet.plans.errors import ModelChanged
from trivet.plans.graph.files import FileChanged, Files
from trivet.plans.graph.pt2_archive import Archive
from trivet.plans.graph.torch_export import Payload, payloads, program_name, weights_digest
from trivet.plans.graph.torch_signature import DTYPES, dimension

_CPU = "cpu"  # which a program may have made another than the default


def read_weights(torch: Any, model: Path, expected: bytes) -> dict[str, Any]:
    """All tensors of the program in ``model`` by name, those that share memory sharing it still.

    What is returned is what was hashed: the bytes are read once. Raises `ModelChanged` unless their
    digest is ``expected``, and `BackendError` for weights that only unpickling could read.
    """
    changed = f"{model} does not hold the weights any more that it was identified by"
    try:
        with Files(str(model.absolute())) as files:
            archive = Archive(files)
            found = payloads(archive, program_name(archive))
            storages: dict[str, Any] = {}
            digests: dict[str, bytes] = {}
            for each in found:
                if each.record not in digests:
                    storages[each.record] = _storage(torch, archive, each.record)
                    digests[each.record] = _digest(storages[each.record])
            if weights_digest(found, digests) != expected:
                raise ModelChanged(changed, hint="replace model files by rename")
    except (FileChanged, ModelError) as error:
        raise ModelChanged(f"{changed}: {error.message}") from error
    return {each.name: _tensor(torch, each, storages[each.record]) for each in found}


def _storage(torch: Any, archive: Archive, record: str) -> Any:
    start, end = archive.range(record)
    storage = torch.empty(end - start, dtype=torch.uint8, device=_CPU)
    archive.reader.read_into(start, memoryview(storage.numpy()))
    return storage


def _digest(storage: Any) -> bytes:
    return blake3(memoryview(storage.numpy())).digest()


def _tensor(torch: Any, payload: Payload, storage: Any) -> Any:
    meta = payload.meta.get("tensor_meta")
    if payload.meta.get("use_pickle") or meta is None:
        raise BackendError(
            f"{payload.name!r} is stored in pickled form, which is not read",
            hint="export the model without tensor subclasses and script objects",
        )
    dtype = getattr(torch, DTYPES.get(meta["dtype"], ""), None)
    if dtype is None:
        raise BackendError(f"{payload.name!r} has a type that this version does not know")
    sizes, strides = ([dimension(each) for each in meta[key]] for key in ("sizes", "strides"))
    if storage.numel() == 0:
        return torch.empty(sizes, dtype=dtype, device=_CPU)
    tensor = torch.empty(0, dtype=dtype, device=_CPU)
    offset = dimension(meta["storage_offset"])
    return tensor.set_(storage.untyped_storage(), offset, sizes, strides)
