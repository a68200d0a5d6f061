"""Identity of OpenVINO IR models."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import onnx_models
from tests.support.memos import DictMemo

from trivet.errors import ModelError
from trivet.plans.graph import GraphMemo, identify
from trivet.plans.model import TensorInfo

XML = """<?xml version="1.0"?>
<net name="net" version="11">
	<layers>
		<layer id="0" name="x" type="Parameter" version="opset1">
			<data shape="?,3" element_type="f32" />
			<output>
				<port id="0" precision="FP32" names="x,a\\,b"><dim>-1</dim><dim>3</dim></port>
			</output>
		</layer>
		<layer id="1" name="Constant_7" type="Const" version="opset1">
			<data element_type="i64" shape="2" offset="0" size="16" />
			<output><port id="0" precision="I64"><dim>2</dim></port></output>
		</layer>
		<layer id="2" name="Constant_3" type="Const" version="opset1">
			<data element_type="f32" shape="3, 4" offset="16" size="48" />
			<output><port id="0" precision="FP32"><dim>3</dim><dim>4</dim></port></output>
		</layer>
		<layer id="3" name="MatMul_4" type="MatMul" version="opset1">
			<data transpose_a="false" transpose_b="false" />
			<rt_info>
				<attribute name="fused_names" version="0" value="MatMul_4" />
				<attribute name="precise" version="0" />
			</rt_info>
			<input>
				<port id="0" precision="FP32"><dim>-1</dim><dim>3</dim></port>
				<port id="1" precision="FP32"><dim>3</dim><dim>4</dim></port>
			</input>
			<output>
				<port id="2" precision="FP32" names="y"><dim>-1</dim><dim>4</dim></port>
			</output>
		</layer>
		<layer id="4" name="Loop_4" type="TensorIterator" version="opset1">
			<port_map><input external_port_id="0" internal_layer_id="0" /></port_map>
			<body>
				<layers>
					<layer id="0" name="Parameter_5" type="Parameter" version="opset1">
						<data shape="?,4" element_type="f32" />
						<output>
							<port id="0" precision="FP32" names="Parameter_5"><dim>4</dim></port>
						</output>
					</layer>
					<layer id="1" name="Result_6" type="Result" output_names="Result_6">
						<input><port id="0" precision="FP32"><dim>4</dim></port></input>
					</layer>
				</layers>
				<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0" /></edges>
				<rt_info />
			</body>
		</layer>
		<layer id="5" name="out" type="Result" version="opset1">
			<input><port id="0" precision="FP32"><dim>-1</dim><dim>4</dim></port></input>
		</layer>
	</layers>
	<edges>
		<edge from-layer="0" from-port="0" to-layer="3" to-port="0" />
		<edge from-layer="2" from-port="0" to-layer="3" to-port="1" />
		<edge from-layer="3" from-port="2" to-layer="5" to-port="0" />
	</edges>
	<rt_info>
		<info name="OpenVINO Runtime" value="2026.4.1" />
		<conversion_parameters><input_model value="DIR/model.onnx" /></conversion_parameters>
		<runtime_options><KV_CACHE_PRECISION value="f16" /></runtime_options>
	</rt_info>
</net>
"""
BIN = bytes(range(64))


def _write(folder: Path, xml: str = XML, content: bytes = BIN) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(content)
    path = folder / "model.xml"
    path.write_text(xml)
    return path


def _change(old: str, new: str) -> str:
    assert old in XML
    return XML.replace(old, new, 1)


STRUCTURE = {
    "net version": ('version="11"', 'version="12"'),
    "layer type": ('type="MatMul"', 'type="Other"'),
    "layer version": ('type="MatMul" version="opset1"', 'type="MatMul" version="opset2"'),
    "layer id": ('id="1" name="Constant_7"', 'id="9" name="Constant_7"'),
    "data": ('transpose_a="false"', 'transpose_a="true"'),
    "data added": ('transpose_a="false"', 'transpose_a="false" more="1"'),
    "data renamed": ('transpose_a="false"', 'transpose_c="false"'),
    "edge": (
        '<edge from-layer="2" from-port="0" to-layer="3" to-port="1" />',
        '<edge from-layer="1" from-port="0" to-layer="3" to-port="1" />',
    ),
    "edge dropped": ('<edge from-layer="2" from-port="0" to-layer="3" to-port="1" />', ""),
    "inner edge": ('<edge from-layer="0" from-port="0" to-layer="1" to-port="0" />', ""),
    "port map": ('external_port_id="0"', 'external_port_id="1"'),
    "input name": ('name="x" type', 'name="z" type'),
    "input tensor name": ('names="x,', 'names="z,'),
    "input shape": ('shape="?,3"', 'shape="1,3"'),
    "input type": ('element_type="f32"', 'element_type="f16"'),
    "output name": ('name="out"', 'name="other"'),
    "output tensor name": ('names="y"', 'names="z"'),
    "dimension of a port": ("<dim>-1</dim><dim>3</dim>", "<dim>1</dim><dim>3</dim>"),
    "precision of a port": ('id="2" precision="FP32"', 'id="2" precision="FP16"'),
    "type of a weight": ('"f32" shape="3, 4"', '"i32" shape="3, 4"'),
    "shape of a weight": ('shape="3, 4"', 'shape="4, 3"'),
    "size of a weight": ('size="48"', 'size="44"'),
    "notes of a layer": ('name="precise"', 'name="fast"'),
    "unknown note of a layer": ('<attribute name="precise"', '<other/><attribute name="precise"'),
    "options of the runtime": ('value="f16"', 'value="u8"'),
    "unknown note of the net": ("<runtime_options>", "<other /><runtime_options>"),
    "unknown element": ("<layers>", "<other /><layers>"),
    "text": ("<port_map>", "<port_map>text"),
}

NEUTRAL = {
    "name of an inner layer": ('name="MatMul_4"', 'name="MatMul_99"'),
    "name of a constant": ('name="Constant_3"', 'name="Constant_99"'),
    "name of a layer in a body": ('name="Parameter_5"', 'name="Parameter_99"'),
    "tensor name in a body": ('names="Parameter_5"', 'names="Parameter_99"'),
    "output name in a body": ('output_names="Result_6"', 'output_names="Result_99"'),
    "order of edges": (
        '<edge from-layer="0" from-port="0" to-layer="3" to-port="0" />\n\t\t'
        '<edge from-layer="2" from-port="0" to-layer="3" to-port="1" />',
        '<edge from-layer="2" from-port="0" to-layer="3" to-port="1" />\n\t\t'
        '<edge from-layer="0" from-port="0" to-layer="3" to-port="0" />',
    ),
    "order of attributes": ('id="0" name="x"', 'name="x" id="0"'),
    "indentation": ("\t\t\t", "  "),
    "comment": ("<layers>", "<!-- a comment --><layers>"),
}

METADATA = {
    "name of the net": ('name="net"', 'name="other"'),
    "version of the writer": ('value="2026.4.1"', 'value="2027.1"'),
    "parameters of the conversion": ("DIR/", "/home/me/"),
    "names of fused layers": ('value="MatMul_4"', 'value="MatMul_4,Relu_9"'),
}


@pytest.mark.parametrize("what", STRUCTURE)
def test_every_change_to_the_structure_counts(what: str, tmp_path: Path) -> None:
    before = identify(_write(tmp_path))
    assert identify(_write(tmp_path, _change(*STRUCTURE[what]))).structure != before.structure


@pytest.mark.parametrize("what", NEUTRAL)
def test_neutral_changes_leave_everything_the_same(what: str, tmp_path: Path) -> None:
    before = identify(_write(tmp_path / "a"))
    after = identify(_write(tmp_path / "b", _change(*NEUTRAL[what])))
    assert (after.structure, after.weights) == (before.structure, before.weights)
    assert after.metadata == before.metadata


@pytest.mark.parametrize("what", METADATA)
def test_notes_without_effect_count_only_as_metadata(what: str, tmp_path: Path) -> None:
    before = identify(_write(tmp_path))
    after = identify(_write(tmp_path, _change(*METADATA[what])))
    assert (after.structure, after.weights) == (before.structure, before.weights)
    assert after.metadata != before.metadata


def test_a_changed_bin_changes_the_weights(tmp_path: Path) -> None:
    before = identify(_write(tmp_path))
    after = identify(_write(tmp_path, content=BIN[:-1] + b"\0"))
    assert after.weights != before.weights
    assert after.structure == before.structure


def test_a_changed_shape_constant_changes_the_structure_too(tmp_path: Path) -> None:
    before = identify(_write(tmp_path))
    after = identify(_write(tmp_path, content=b"\1" + BIN[1:]))
    assert after.weights != before.weights
    assert after.structure != before.structure


def test_where_constants_lie_in_the_bin_does_not_count(tmp_path: Path) -> None:
    before = identify(_write(tmp_path / "a"))
    moved = _change('offset="0" size="16"', 'offset="50" size="16"')
    moved = moved.replace('offset="16" size="48"', 'offset="2" size="48"')
    content = b"--" + BIN[16:] + BIN[:16]
    after = identify(_write(tmp_path / "b", moved, content))
    assert (after.structure, after.weights) == (before.structure, before.weights)


def test_swapping_the_contents_of_two_constants_counts(tmp_path: Path) -> None:
    def swapped(one: str, other: str) -> str:
        return (
            XML.replace('offset="0" size="16"', f'offset="{one}" size="24"')
            .replace('offset="16" size="48"', f'offset="{other}" size="24"')
            .replace('"i64"', '"f32"')
        )

    before = identify(_write(tmp_path, swapped("0", "24")))
    after = identify(_write(tmp_path, swapped("24", "0")))
    assert after.structure == before.structure
    assert after.weights != before.weights


def test_inputs_outputs_and_operators_are_listed(tmp_path: Path) -> None:
    graph = identify(_write(tmp_path))
    assert graph.format == "openvino-ir"
    assert graph.inputs == (TensorInfo("a,b", "float32", (None, 3)),)
    assert graph.outputs == (TensorInfo("y", "float32", (None, 4)),)
    assert "opset1::MatMul" in graph.operators
    assert [Path(each.path).name for each in graph.sources] == ["model.xml", "model.bin"]


def test_the_signature_is_what_openvino_says(tmp_path: Path) -> None:
    import openvino as ov

    source = onnx_models.save(onnx_models.dynamic_batch(), tmp_path / "source.onnx")
    path = tmp_path / "model.xml"
    ov.save_model(ov.convert_model(source), path, compress_to_fp16=False)
    graph = identify(path)
    model = ov.Core().read_model(path)
    for mine, theirs in ((graph.inputs, model.inputs), (graph.outputs, model.outputs)):
        assert [each.name for each in mine] == [each.any_name for each in theirs]
        for one, other in zip(mine, theirs, strict=True):
            dims = [None if d.is_dynamic else d.get_length() for d in other.partial_shape]
            assert list(one.shape or ()) == dims
        assert all(each.dtype == "float32" for each in mine)


def test_converting_twice_gives_one_identity(tmp_path: Path) -> None:
    """OpenVINO numbers inner layers by a counter that goes on through the whole process."""
    import openvino as ov

    source = onnx_models.save(onnx_models.conv_net(), tmp_path / "source.onnx")
    other = onnx_models.save(onnx_models.conv_net(seed=1), tmp_path / "other.onnx")
    found = []
    for i, each in enumerate((source, source, other)):
        path = tmp_path / str(i) / "model.xml"
        path.parent.mkdir()
        ov.save_model(ov.convert_model(each), path)
        found.append(identify(path))
    assert found[0].structure == found[1].structure == found[2].structure
    assert found[0].weights == found[1].weights
    assert found[0].weights != found[2].weights


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda xml: xml[:-20], "malformed"),
        (lambda xml: "", "malformed"),
        (lambda xml: "<other/>", "no <net>"),
        (lambda xml: "<!DOCTYPE net>" + xml.split("\n", 1)[1], "document type"),
        (
            lambda xml: '<!DOCTYPE n [<!ENTITY a "b">]>' + xml.split("\n", 1)[1],
            "document type",
        ),
        (lambda xml: xml.replace('name="out"', 'name="&undefined;"'), "malformed"),
        (lambda xml: xml.replace("<layers>", "<a>" * 200 + "<layers>", 1), "nested"),
        (lambda xml: xml.replace('offset="16"', 'offset="-16"'), "number of bytes"),
        (lambda xml: xml.replace('offset="16"', 'offset="17"'), "has 64 bytes"),
        (lambda xml: xml.replace('size="48"', f'size="{"9" * 18}"'), "has 64 bytes"),
        (lambda xml: xml.replace('name="out"', 'name="\udcff"'), "malformed"),
    ],
)
def test_bad_xml_is_a_model_error(
    broken: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    path = _write(tmp_path)
    path.write_bytes(broken(XML).encode(errors="surrogateescape"))
    with pytest.raises(ModelError, match=message):
        identify(path)


def test_a_missing_bin_is_a_model_error_unless_nothing_needs_it(tmp_path: Path) -> None:
    path = _write(tmp_path)
    (tmp_path / "model.bin").unlink()
    with pytest.raises(ModelError, match=r"model\.bin"):
        identify(path)
    path.write_text('<net name="n" version="11"><layers/><edges/></net>')
    assert len(identify(path).sources) == 1


def test_the_memo_sees_a_bin_replaced_under_a_preserved_time(tmp_path: Path) -> None:
    class Later:
        def time(self) -> float:
            return 1e11

        monotonic = time

        def sleep(self, seconds: float) -> None:
            raise AssertionError

    path, store = _write(tmp_path), DictMemo()
    memo = GraphMemo(store, Later())
    before = memo.identify(path)
    assert len(store) == 1
    data = tmp_path / "model.bin"
    times = data.stat()
    onnx_models.let_time_pass(data)
    data.write_bytes(BIN[::-1])
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert memo.identify(path).weights != before.weights


def test_long_text_and_large_files_do_not_depend_on_where_pieces_end(tmp_path: Path) -> None:
    """Comments move everything by a few bytes over the ends of the pieces that are parsed."""
    long = _change("<port_map>", "<port_map>" + "word " * 30_000)
    found = {
        identify(
            _write(tmp_path, long.replace("<layers>", f"<!--{'x' * n}--><layers>", 1))
        ).structure
        for n in (1, 2, 3, 1000, 65_000)
    }
    assert len(found) == 1
