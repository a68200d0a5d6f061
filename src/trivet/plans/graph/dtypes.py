"""Element types of ONNX tensors and of OpenVINO IR, by their names in NumPy or else their own."""

from __future__ import annotations

import msgspec

FLOATS, INT32S, STRINGS, INT64S, RAW, DOUBLES, UINT64S = 4, 5, 6, 7, 9, 10, 11


class ElementType(msgspec.Struct, frozen=True):
    """How the elements of an ONNX tensor are stored.

    Attributes:
        name: as in `TensorInfo.dtype`.
        bits: of one element in raw form; 0 where it varies.
        field: number of the `TensorProto` field that holds elements which are not raw.
        code: `array` type code that turns a number of that field into its raw form; "" where the
            field holds raw bytes already, or where there is no element-wise raw form.
    """

    name: str
    bits: int
    field: int
    code: str = ""


ONNX: dict[int, ElementType] = {
    1: ElementType("float32", 32, FLOATS),
    2: ElementType("uint8", 8, INT32S, "B"),
    3: ElementType("int8", 8, INT32S, "b"),
    4: ElementType("uint16", 16, INT32S, "H"),
    5: ElementType("int16", 16, INT32S, "h"),
    6: ElementType("int32", 32, INT32S, "i"),
    7: ElementType("int64", 64, INT64S, "q"),
    8: ElementType("string", 0, STRINGS),
    9: ElementType("bool", 8, INT32S, "B"),
    10: ElementType("float16", 16, INT32S, "H"),
    11: ElementType("float64", 64, DOUBLES),
    12: ElementType("uint32", 32, UINT64S, "I"),
    13: ElementType("uint64", 64, UINT64S, "Q"),
    14: ElementType("complex64", 64, FLOATS),
    15: ElementType("complex128", 128, DOUBLES),
    16: ElementType("bfloat16", 16, INT32S, "H"),
    17: ElementType("float8_e4m3fn", 8, INT32S, "B"),
    18: ElementType("float8_e4m3fnuz", 8, INT32S, "B"),
    19: ElementType("float8_e5m2", 8, INT32S, "B"),
    20: ElementType("float8_e5m2fnuz", 8, INT32S, "B"),
    21: ElementType("uint4", 4, INT32S, "B"),
    22: ElementType("int4", 4, INT32S, "B"),
    23: ElementType("float4_e2m1fn", 4, INT32S, "B"),
    24: ElementType("float8_e8m0fnu", 8, INT32S, "B"),
    25: ElementType("uint2", 2, INT32S, "B"),
    26: ElementType("int2", 2, INT32S, "B"),
    # Six bits are packed in raw form but not in int32_data, so the two forms count as different.
    27: ElementType("float6_e2m3fn", 6, INT32S),
    28: ElementType("float6_e3m2fn", 6, INT32S),
}

OPENVINO = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "boolean": "bool",
    "string": "string",
    "i4": "int4",
    "u4": "uint4",
    "u2": "uint2",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e8m0": "float8_e8m0fnu",
    "f4e2m1": "float4_e2m1fn",
}


def onnx_name(code: int) -> str:
    """Name of an ONNX element type; one that is newer than this table is called ``onnx-N``."""
    known = ONNX.get(code)
    return known.name if known else f"onnx-{code}"
