"""External data, and files that change, are missing or are not what they seem."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, helper
from tests.support import onnx_models

from trivet.errors import ModelError
from trivet.plans.graph import files as graph_files
from trivet.plans.graph import identify, unchanged


def _external(
    path: Path, location: str, *, offset: str | None = None, length: str | None = None, **extra: str
) -> Path:
    """An `mlp` of width 4 and one layer whose matrix (64 bytes) lies at ``location``."""
    proto = onnx_models.mlp(4, 1)
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": length, **extra}
    for key, value in entries.items():
        if value is not None:
            weight.external_data.add(key=key, value=value)
    return onnx_models.save(proto, path)


def _matrix() -> bytes:
    return bytes(onnx_models.mlp(4, 1).graph.initializer[0].raw_data)


def test_inline_and_external_weights_are_the_same_model(tmp_path: Path) -> None:
    inline = identify(onnx_models.save(onnx_models.conv_net(), tmp_path / "inline.onnx"))
    external = identify(onnx_models.external_data(tmp_path / "far", onnx_models.conv_net()))
    assert external.structure == inline.structure
    assert external.weights == inline.weights
    assert [Path(each.path).name for each in external.sources] == ["model.onnx", "weights.bin"]


def test_a_changed_external_file_changes_the_weights(tmp_path: Path) -> None:
    path = onnx_models.external_data(tmp_path, onnx_models.conv_net(seed=1))
    model = path.read_bytes()
    before = identify(path)
    onnx_models.external_data(tmp_path, onnx_models.conv_net(seed=2))
    assert path.read_bytes() == model
    after = identify(path)
    assert after.weights != before.weights
    assert after.structure == before.structure


def test_only_the_ranges_referred_to_count(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"before" + _matrix() + b"after")
    path = _external(tmp_path / "model.onnx", "w", offset="6", length="64")
    before = identify(path)
    plain = identify(onnx_models.save(onnx_models.mlp(4, 1), tmp_path / "plain.onnx"))
    assert (before.structure, before.weights) == (plain.structure, plain.weights)
    (tmp_path / "w").write_bytes(b"BEFORE" + _matrix() + b"AFTER, and longer")
    assert identify(path).weights == before.weights
    (tmp_path / "w").write_bytes(b"before" + b"\0" + _matrix()[1:] + b"after")
    assert identify(path).weights != before.weights


def test_without_a_length_the_shape_says_how_much_is_read(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(_matrix() + b"what follows")
    bare = identify(_external(tmp_path / "bare.onnx", "w"))
    exact = identify(_external(tmp_path / "exact.onnx", "w", offset="0", length="64"))
    assert bare.weights == exact.weights
    assert bare.structure == exact.structure


def test_one_file_per_tensor(tmp_path: Path) -> None:
    proto = onnx_models.conv_net()
    plain = identify(onnx_models.save(proto, tmp_path / "plain.onnx"))
    external_data_helper.convert_model_to_external_data(
        proto, all_tensors_to_one_file=False, size_threshold=0
    )
    (tmp_path / "many").mkdir()
    onnx.save_model(proto, str(tmp_path / "many" / "model.onnx"))
    graph = identify(tmp_path / "many" / "model.onnx")
    assert graph.weights == plain.weights
    assert len(graph.sources) == 1 + len(proto.graph.initializer)


def test_external_keys_that_no_rule_knows_count(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(_matrix())
    plain = identify(_external(tmp_path / "plain.onnx", "w"))
    marked = identify(_external(tmp_path / "marked.onnx", "w", prepacked_0="w2|0|64"))
    assert marked.structure != plain.structure


@pytest.mark.parametrize(
    ("location", "offset", "length", "message"),
    [
        ("missing", None, None, "can't open"),
        ("w", "1", "64", "has 64 bytes"),
        ("w", None, "65", "has 64 bytes"),
        ("w", "-1", "64", "not a number of bytes"),
        ("w", "0x0", "64", "not a number of bytes"),
        ("w", "0", "9" * 30, "not a number of bytes"),
        ("", None, None, "not a relative path"),
        ("/etc/hostname", None, None, "not a relative path"),
        ("../outside", None, None, "outside the model's folder"),
        ("sub/../../outside", None, None, "outside the model's folder"),
        ("link", None, None, "outside the model's folder"),
        ("sub", None, None, "not a regular file"),
        (".", None, None, "outside the model's folder"),
        ("pipe", None, None, "not a regular file"),
        ("*/_ORT_MEM_ADDR_/*", "140737488355328", "64", "can't open"),
    ],
)
def test_bad_external_data_is_a_model_error(
    location: str, offset: str | None, length: str | None, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "w").write_bytes(_matrix())
    (tmp_path / "outside").write_bytes(_matrix())
    (folder / "link").symlink_to("../outside")
    os.mkfifo(folder / "pipe")
    path = _external(folder / "model.onnx", location, offset=offset, length=length)
    with pytest.raises(ModelError, match=message):
        identify(path)


def test_external_data_named_twice_is_refused(tmp_path: Path) -> None:
    path = _external(tmp_path / "model.onnx", "w")
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data.add(key="location", value="v")
    onnx_models.save(proto, path)
    with pytest.raises(ModelError, match="twice"):
        identify(path)


def test_links_of_a_download_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    stored = onnx_models.external_data(blobs, onnx_models.conv_net())
    (blobs / "weights.bin").rename(blobs / "0b")
    stored.rename(blobs / "0a")
    (snapshot / "model.onnx").symlink_to("../../blobs/0a")
    (snapshot / "weights.bin").symlink_to("../../blobs/0b")
    graph = identify(snapshot / "model.onnx")
    inline = identify(onnx_models.save(onnx_models.conv_net(), tmp_path / "inline.onnx"))
    assert graph.weights == inline.weights


def test_ranges_that_overlap_over_and_over_are_refused(tmp_path: Path) -> None:
    """Or a small file could have a large one hashed a million times."""
    (tmp_path / "w").write_bytes(bytes(100_000))
    tensors = []
    for i in range(200):
        tensor = onnx.TensorProto(name=f"w{i}", data_type=2, dims=[90_000], data_location=1)
        tensor.external_data.add(key="location", value="w")
        tensor.external_data.add(key="offset", value=str(i))
        tensors.append(tensor)
    proto = onnx_models.mlp()
    proto.graph.initializer.extend(tensors)
    with pytest.raises(ModelError, match="too often"):
        identify(onnx_models.save(proto, tmp_path / "model.onnx"))


def test_unchanged_sees_every_source(tmp_path: Path) -> None:
    path = onnx_models.external_data(tmp_path)
    graph = identify(path)
    assert unchanged(graph)
    data = tmp_path / "weights.bin"
    times = data.stat()
    onnx_models.let_time_pass(data)
    data.write_bytes(data.read_bytes()[::-1])
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert data.stat().st_mtime_ns == times.st_mtime_ns
    assert not unchanged(graph)
    graph = identify(path)
    data.unlink()
    assert not unchanged(graph)


class _Meddler:
    """Changes a file just after it was opened, a given number of times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, times: int, change: Callable[[str], None]
    ) -> None:
        self.left = times
        original = graph_files.Reader.__init__
        meddler = self

        def opened(reader: graph_files.Reader, path: str, buffer: bytearray) -> None:
            original(reader, path, buffer)
            if meddler.left:
                meddler.left -= 1
                change(path)

        monkeypatch.setattr(graph_files.Reader, "__init__", opened)


def _replace(path: str) -> None:
    new = onnx_models.save(onnx_models.mlp(seed=9), Path(path).with_suffix(".new"))
    new.replace(path)


def _truncate(path: str) -> None:
    os.truncate(path, 100)


def _append(path: str) -> None:
    with Path(path).open("ab") as file:
        file.write(b"\0")


def test_a_model_replaced_while_being_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = onnx_models.save(onnx_models.mlp(), tmp_path / "model.onnx")
    meddler = _Meddler(monkeypatch, 1, _replace)
    graph = identify(path)
    assert meddler.left == 0
    assert graph == identify(path)
    assert unchanged(graph)


@pytest.mark.parametrize("change", [_truncate, _append])
def test_a_model_that_keeps_changing_is_a_model_error(
    change: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = onnx_models.save(onnx_models.mlp(), tmp_path / "model.onnx")
    _Meddler(monkeypatch, 2, change)
    with pytest.raises(ModelError, match="chang"):
        identify(path)


@pytest.mark.parametrize(
    "name", ["missing.onnx", "folder.onnx", "pipe.onnx", "empty.onnx", "text.onnx", "model.pt"]
)
def test_what_is_no_model_is_a_model_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("not a model at all\n")
    (tmp_path / "model.pt").touch()
    with pytest.raises(ModelError, match=name):
        identify(tmp_path / name)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = onnx_models.external_data(tmp_path)
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(path.read_bytes()[:-3])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        identify(path)
        with pytest.raises(ModelError):
            identify(bad)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("depth", "refused"), [(31, False), (32, True), (5000, True)])
def test_graphs_nested_without_end_are_refused(depth: int, refused: bool, tmp_path: Path) -> None:
    graph = b""
    for _ in range(depth):  # graph in attribute (6) in node (5) in graph (1)
        graph = onnx_models.field(1, onnx_models.field(5, onnx_models.field(6, graph)))
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.field(7, graph))
    if refused:
        with pytest.raises(ModelError, match="nested"):
            identify(path)
    else:
        assert identify(path).operators == ("ai.onnx::",)


def test_a_hundred_thousand_nodes(tmp_path: Path) -> None:
    count = 100_000
    node = onnx.NodeProto(op_type="Relu")
    parts = []
    for i in range(count):
        node.input[:] = [f"v{i}"]
        node.output[:] = [f"v{i + 1}"]
        parts.append(onnx_models.field(1, node.SerializeToString()))
    rest = onnx.GraphProto(
        input=[onnx_models.tensor("v0", [4])], output=[onnx_models.tensor(f"v{count}", [4])]
    )
    graph = b"".join(parts) + rest.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.field(7, graph))
    assert len(onnx.load(path).graph.node) == count
    found = identify(path)
    assert found.operators == ("ai.onnx::Relu",)
    path.write_bytes(path.read_bytes().replace(b"v77777", b"w77777"))
    assert identify(path).structure == found.structure


def test_a_model_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    """A sparse file: its zeros take no room on the disk; what lies beyond 4 GiB counts."""
    data = tmp_path / "w"
    data.touch()
    os.truncate(data, (5 << 30) + 64)
    far = str(5 << 30)
    path = _external(tmp_path / "model.onnx", "w", offset=far, length="64")
    before = identify(path)
    with data.open("r+b") as file:
        file.seek((5 << 30) + 63)
        file.write(b"\1")
    after = identify(path)
    assert before.structure == after.structure
    assert before.weights != after.weights
    assert after.sources[1].size == (5 << 30) + 64


def test_memory_stays_small_beside_the_weights(tmp_path: Path) -> None:
    proto = onnx_models.mlp(1024, 6)
    inline = onnx_models.save(proto, tmp_path / "inline.onnx")
    external = onnx_models.external_data(tmp_path / "external", proto)
    size = inline.stat().st_size
    for path in (inline, external):
        identify(path)
        tracemalloc.start()
        identify(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.2 * size


def test_contents_wider_than_a_window_are_read_whole(tmp_path: Path) -> None:
    """Sizes around the pieces in which files are read: the last byte always counts."""
    found = set()
    for size in (4095, 4096, 4097, 65535, 65536, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        for last in (0, 1):
            array = np.zeros(size, np.uint8)
            array[-1] = last
            proto = onnx_models.model([helper.make_node("N", ["w"], ["y"])], [], [], {"w": array})
            found.add(identify(onnx_models.save(proto, tmp_path / "model.onnx")).weights)
    assert len(found) == 18
