"""Which files of a framework's folder are complete, and worth keeping."""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
import pytest
from tests.support.toys import LIBRARIES
from tests.unit.plans.folders.test_dependencies import TOY
from tests.unit.plans.folders.test_guard import BASE, BASIS

from trivet.cache import Cache
from trivet.plans.folders import KNOWN, CacheFolder
from trivet.plans.folders.guard import KeptFolder, Restored

FRAMEWORKS = {each.name: each for each in KNOWN}
# As libzstd 1.5 writes them: one block, one with a checksum, three of a size that is not said.
ZSTD = [
    bytes.fromhex("28b52ffd600400a50000686d616368696e6520636f646520010074a0e617"),
    bytes.fromhex("28b52ffd2440010200" + bytes(range(64)).hex() + "f01367db"),
    bytes.fromhex("28b52ffd00485400001078780100fbff39c00202001078039f0478"),
]


def whole(framework: str, path: Path, content: bytes) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return FRAMEWORKS[framework].is_complete(path)


@pytest.mark.parametrize("entry", [*ZSTD, zlib.compress(bytes(range(256)) * 40)])
def test_an_entry_of_jax_is_whole_with_its_last_byte_and_no_other(
    entry: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "jit_f-0123-cache"
    assert whole("jax", path, entry)
    for size in range(len(entry)):
        assert not whole("jax", path, entry[:size]), size
    assert not whole("jax", path, entry + b"x")
    assert not whole("jax", path, b"?" + entry)
    assert whole("jax", tmp_path / "something else", b"")


@pytest.mark.parametrize("framework", ["torch", "vllm"])
def test_a_library_is_whole_with_the_table_that_the_linker_writes_last(
    framework: str, tmp_path: Path
) -> None:
    library = Path(LIBRARIES["lmdb"]).read_bytes()
    path = tmp_path / "inductor" / "ab" / "cab.main.so"
    assert whole(framework, path, library)
    for size in (0, 1, 63, 64, 4096, len(library) // 2, len(library) - 1):
        assert not whole(framework, path, library[:size]), size
    assert not whole(framework, path, bytes(64) + library[64:])  # the head comes last
    assert whole(framework, tmp_path / "cab.py", b"")


def test_what_vllm_would_stumble_over_is_not_whole(tmp_path: Path) -> None:
    index = tmp_path / "rank_0_0" / "backbone" / "vllm_compile_cache.py"
    content = b"{   ((1, 8), 0, 'inductor'): {'graph_handle': ('a', 'b'), 'cache_key': 'k'}}"
    assert whole("vllm", index, content)
    assert not whole("vllm", index, content[:40])
    assert not whole("vllm", index, b"")
    assert whole("vllm", tmp_path / "modelinfos" / "a.json", b'{"hash": "1"}')
    assert not whole("vllm", tmp_path / "modelinfos" / "a.json", b'{"hash": ')
    assert whole("vllm", tmp_path / "computation_graph.py", b"half of a gra")  # nobody reads it


def kept(cache: Cache, framework: CacheFolder, path: Path) -> KeptFolder:
    return KeptFolder(cache, framework, BASIS, BASE, path, command=(b"serve",), wait=0.0)


def names(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


MODULE = "neuronxcc-2.15/MODULE_12+d41d8cd9"


def test_what_neuron_failed_to_compile_is_compiled_again(tmp_path: Path) -> None:
    """Neuron remembers it, also where it was killed, and compiles it no more."""
    neuron = msgspec.structs.replace(TOY, is_complete=FRAMEWORKS["neuron"].is_complete)
    modules = {
        "": {"model.hlo_module.pb": "graph", "model.neff": "code", "model.done": ""},
        "failed": {"model.hlo_module.pb": "graph", "model.log": "killed", "model.done": ""},
        "begun": {"model.hlo_module.pb": "graph", "model.neff": "code"},
        "empty": {"model.hlo_module.pb": "graph", "model.neff": "", "model.done": ""},
    }
    with Cache.open(tmp_path / "cache") as cache:
        folder = kept(cache, neuron, tmp_path / "one")
        for module, files in modules.items():
            (folder.path / (MODULE + module)).mkdir(parents=True)
            for name, content in files.items():
                (folder.path / (MODULE + module) / name).write_text(content)
        assert folder.capture(lambda: BASE, lambda: BASE)
        assert (folder.added, folder.left_out) == (3, 8)
        folder.release()
        again = kept(cache, neuron, tmp_path / "two")
        assert names(again.path) == {f"{MODULE}/{name}" for name in modules[""]}


def test_what_is_not_whole_is_kept_once_it_is(tmp_path: Path) -> None:
    toy = msgspec.structs.replace(TOY, is_complete=lambda path: path.read_text().endswith("."))
    with Cache.open(tmp_path / "cache") as cache:
        folder = kept(cache, toy, tmp_path / "one")
        (folder.path / "b").write_text("half")
        assert not folder.capture(lambda: BASE, lambda: BASE)
        assert (folder.added, folder.left_out) == (0, 1)
        (folder.path / "a").write_text("whole.")
        (folder.path / "b").chmod(0o700)  # as a library that is being linked
        assert folder.capture(lambda: BASE, lambda: BASE)
        assert not folder.capture(lambda: BASE, lambda: BASE)  # nothing new
        assert (folder.added, folder.left_out) == (1, 1)
        between = kept(cache, toy, tmp_path / "two")
        assert (between.restored, names(between.path)) == (Restored.HIT, {"a"})
        (folder.path / "b").write_text("half and half.")
        assert folder.capture(lambda: BASE, lambda: BASE)
        assert (folder.added, folder.left_out) == (2, 0)
        assert names(kept(cache, toy, tmp_path / "three").path) == {"a", "b"}


def test_what_others_kept_whole_is_not_replaced_by_half_of_it(tmp_path: Path) -> None:
    toy = msgspec.structs.replace(TOY, is_complete=lambda path: path.read_text().endswith("."))
    with Cache.open(tmp_path / "cache") as cache:
        one, two = (kept(cache, toy, tmp_path / each) for each in ("one", "two"))
        (one.path / "a").write_text("whole.")
        assert one.capture(lambda: BASE, lambda: BASE)
        (two.path / "a").write_text("half")
        (two.path / "b").write_text("whole.")
        assert two.capture(lambda: BASE, lambda: BASE)
        found = kept(cache, toy, tmp_path / "three")
        assert (found.path / "a").read_text() == "whole."
        assert (found.files, names(found.path)) == (2, {"a", "b"})
