"""What is written in the usual form has the identity that it has in any other form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.support import onnx_models

from trivet.plans.graph import identify
from trivet.plans.model import GraphId

X = onnx_models.tensor("x", [1, 4])
Y = onnx_models.tensor("y", [1, 4])


def _identify(folder: Path, proto: onnx.ModelProto) -> GraphId:
    return identify(onnx_models.save(proto, folder / "model.onnx"))


def _counted(graph: GraphId) -> tuple[bytes, bytes]:
    return graph.structure, graph.weights


def _with_weight(array: np.ndarray, *, doc: str = "", name: str = "w") -> onnx.ModelProto:
    weight = numpy_helper.from_array(array, name)
    weight.doc_string = doc
    proto = onnx_models.model([helper.make_node("Op", ["x", name], ["y"])], [X], [Y])
    proto.graph.initializer.append(weight)
    return proto


@pytest.mark.parametrize(
    "shape", [(), (0,), (1,), (3, 0), (66,), (8, 66, 2), (130, 5), (16384, 1), (1,) * 20]
)
@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "bool", "float16", "complex64"])
def test_a_documented_weight_is_the_same_weight(
    shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    bare = _identify(tmp_path, _with_weight(array))
    for each in (
        _with_weight(array, doc="documented"),
        _with_weight(array, name="n" * 127),
        _with_weight(array, name="n" * 128),
        _with_weight(array, name="B" * 66),
    ):
        assert _counted(_identify(tmp_path, each)) == _counted(bare)


@pytest.mark.parametrize("change", ["shape", "type", "content", "rank"])
def test_a_weight_of_the_same_size_is_another_weight(change: str, tmp_path: Path) -> None:
    array = np.arange(66 * 4, dtype=np.float32).reshape(66, 4)
    other = {
        "shape": array.reshape(4, 66),
        "type": array.view(np.int32),
        "content": -array,
        "rank": array.reshape(66, 4, 1),
    }[change]
    assert _counted(_identify(tmp_path, _with_weight(array))) != _counted(
        _identify(tmp_path, _with_weight(other))
    )


def test_a_raw_field_of_the_wrong_size_is_counted_as_it_stands(tmp_path: Path) -> None:
    proto = _with_weight(np.ones(4, np.float32))
    before = _identify(tmp_path, proto)
    proto.graph.initializer[0].raw_data += b"\0"
    assert _identify(tmp_path, proto).weights != before.weights


def _chain(docs: tuple[str, str], alpha: float = 0.5) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Elu", ["x"], ["h"], alpha=alpha, doc_string=docs[0]),
        helper.make_node("Elu", ["h"], ["y"], alpha=0.5, doc_string=docs[1]),
    ]
    return onnx_models.model(nodes, [X], [Y])


def test_an_attribute_met_again_is_what_it_was_at_first(tmp_path: Path) -> None:
    """After documentation, short or long, the rest of a node is read in another way."""
    bare = _identify(tmp_path, _chain(("", "")))
    assert _counted(_identify(tmp_path, _chain(("short", "long" * 1000)))) == _counted(bare)
    assert _counted(_identify(tmp_path, _chain(("", ""), alpha=0.25))) != _counted(bare)


def _branches(first: str, second: str) -> onnx.ModelProto:
    """Two nodes whose branches are equal but for the names of what they compute."""
    nodes = [helper.make_node("Less", ["x", "x"], ["c"])]
    for output, inner in (("h", first), ("y", second)):
        branch = helper.make_graph(
            [helper.make_node("Neg", ["x"], [inner]), helper.make_node("Neg", [inner], ["o"])],
            "b",
            [],
            [helper.make_empty_tensor_value_info("o")],
        )
        nodes.append(
            helper.make_node("If", ["c"], [output], then_branch=branch, else_branch=branch)
        )
    return onnx_models.model(nodes, [X], [Y])


def test_branches_of_equal_bytes_define_values_of_their_own(tmp_path: Path) -> None:
    alike, apart = _branches("t", "t"), _branches("t", "u")
    assert len(alike.graph.node[1].attribute[0].SerializeToString()) < 200
    assert _counted(_identify(tmp_path, alike)) == _counted(_identify(tmp_path, apart))


def test_a_constant_met_again_counts_again(tmp_path: Path) -> None:
    def constants(*values: int) -> onnx.ModelProto:
        made = [
            helper.make_node(
                "Constant",
                [],
                [f"c{i}"],
                value=helper.make_tensor("v", TensorProto.FLOAT, [1], [value]),
            )
            for i, value in enumerate(values)
        ]
        last = helper.make_node("Sum", ["x", *(f"c{i}" for i in range(len(values)))], ["y"])
        return onnx_models.model([*made, last], [X], [Y])

    orders = [(1, 1, 2), (1, 2, 1), (2, 1, 1), (1, 2, 2), (1, 1), (1, 1, 1)]
    found = {_counted(_identify(tmp_path, constants(*each))) for each in orders}
    assert len(found) == len(orders)


def test_a_node_of_more_inputs_than_are_counted_in_full(tmp_path: Path) -> None:
    def joined(count: int, *, swapped: bool = False) -> onnx.ModelProto:
        names = [f"n{i}" for i in range(count)]
        if swapped:
            names[-2:] = "x", "x"
        return onnx_models.model([helper.make_node("Sum", ["x", *names], ["y"])], [X], [Y])

    graphs = [joined(500), joined(511), joined(512), joined(2000), joined(2000, swapped=True)]
    assert len({_identify(tmp_path, each).structure for each in graphs}) == len(graphs)


@pytest.mark.parametrize(("number", "wire"), [(7, 0), (8, 5), (9, 0)])
def test_a_list_counts_behind_a_field_of_its_number_and_another_type(
    number: int, wire: int, tmp_path: Path
) -> None:
    """Runtimes skip such a field, and read the list."""

    def transposed(last: bytes) -> GraphId:
        odd = bytes([number << 3 | wire]) + bytes(4 if wire else 1)
        value = {7: b"\0\0\0", 8: b"", 9: b""}[number] + last
        listed = onnx_models.field(number, value)
        attribute = onnx_models.field(1, b"a") + odd + listed
        node = onnx_models.field(4, b"Op") + onnx_models.field(5, attribute)
        path = tmp_path / "model.onnx"
        path.write_bytes(onnx_models.field(7, onnx_models.field(1, node)))
        return identify(path)

    assert _counted(transposed(b"\1")) != _counted(transposed(b"\2"))


def test_it_counts_which_value_an_unknown_field_belongs_to(tmp_path: Path) -> None:
    odd = b"\xb8\x3e\x01"  # field 999, a varint

    def identity(first: bytes, second: bytes, output: bytes, graph: bytes) -> tuple[bytes, bytes]:
        field = onnx_models.field
        node = field(1, b"x") + field(2, b"h") + field(2, b"k") + field(4, b"Op")
        body = field(1, node) + field(12, field(1, b"k") + output)
        body += field(13, field(1, b"h") + first) + field(13, field(1, b"k") + second) + graph
        path = tmp_path / "model.onnx"
        path.write_bytes(field(7, body))
        return _counted(identify(path))

    places = [tuple(odd if i == j else b"" for j in range(4)) for i in range(4)]
    assert len({identity(*each) for each in places}) == len(places)
