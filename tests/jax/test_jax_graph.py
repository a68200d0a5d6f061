"""Identity and signature of exported programs, read without JAX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from tests.support.jax_programs import dense, export, free, like, nested

from trivet.errors import ModelError
from trivet.plans.graph import identify
from trivet.plans.model import TensorInfo


def test_names_types_and_shapes_are_those_that_jax_says(tmp_path: Path) -> None:
    path = nested(tmp_path / "m.jaxexport")
    graph = identify(path)
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    for infos, avals in ((graph.inputs, exported.in_avals), (graph.outputs, exported.out_avals)):
        assert [(each.dtype, each.shape) for each in infos] == [
            (str(aval.dtype), tuple(aval.shape)) for aval in avals
        ]
    assert [each.name for each in graph.inputs] == [
        *("arg0.b", "arg0.layers.0.w", "arg1", "arg2", "scale"),
    ]
    assert [each.name for each in graph.outputs] == ["out.logits", "out.more.0", "out.more.1"]


def test_symbols_are_symbols(tmp_path: Path) -> None:
    graph = identify(free(tmp_path / "m.jaxexport"))
    assert graph.inputs == (TensorInfo("arg0", "float32", ("b", 16)),)
    assert graph.outputs == (TensorInfo("out", "float32", ("b", 16)),)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64", "complex64"]
)
def test_element_types(tmp_path: Path, dtype: str) -> None:
    path = export(lambda x: (x, x), tmp_path / "m.jaxexport", like(2, dtype=jnp.dtype(dtype)))
    graph = identify(path)
    assert [each.dtype for each in (*graph.inputs, *graph.outputs)] == [dtype] * 3
    assert [each.name for each in graph.outputs] == ["out0", "out1"]


def test_the_same_program_elsewhere_is_the_same_graph(tmp_path: Path) -> None:
    one = dense(tmp_path / "a" / "m.jaxexport")
    other = tmp_path / "b" / "n.jaxexport"
    other.parent.mkdir()
    other.write_bytes(one.read_bytes())
    assert identify(one).structure == identify(other).structure


def test_another_weight_is_another_graph(tmp_path: Path) -> None:
    one, other = dense(tmp_path / "a.jaxexport"), dense(tmp_path / "b.jaxexport", seed=1)
    assert identify(one).structure != identify(other).structure


def test_an_argument_that_goes_by_the_name_of_another_is_refused(tmp_path: Path) -> None:
    def function(x: jax.Array, *, arg0: jax.Array) -> jax.Array:
        return x + arg0

    path = export(function, tmp_path / "m.jaxexport", like(2), arg0=like(2))
    with pytest.raises(ModelError, match="one name"):
        identify(path)


def test_reading_imports_nothing_of_jax(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.jaxexport")
    code = (
        "import sys; from pathlib import Path; from trivet.plans.graph import identify; "
        "identify(Path(sys.argv[1])); print({'jax', 'flatbuffers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_damage_is_a_model_error_or_another_graph_and_never_anything_else(tmp_path: Path) -> None:
    path = nested(tmp_path / "m.jaxexport")
    whole = path.read_bytes()
    graph = identify(path)
    random = np.random.default_rng(0)
    refused = 0
    for position in (*range(64), *random.integers(0, len(whole), 400).tolist()):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        try:
            assert identify(path).structure != graph.structure
        except ModelError:
            refused += 1
    for size in (0, 1, 4, 100, len(whole) // 2):
        path.write_bytes(whole[:size])
        try:
            assert identify(path).structure != graph.structure
        except ModelError:
            refused += 1
    assert refused > 10
