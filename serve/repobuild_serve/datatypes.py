"""The tensor element types: wire names, config names, sizes and NumPy types (Triton contract, datatypes)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataType:
    """One element type.

    Attributes:
        wire: Name in requests and metadata, e.g. ``"FP32"``.
        config: Name in config.pbtxt, e.g. ``"TYPE_FP32"``.
        size: Bytes per element; 0 for BYTES, whose elements vary.
        numpy: NumPy type name, little-endian; ``""`` where NumPy has none (BF16).
        code: ``struct`` code of the type; ``""`` if it is not read from JSON numbers.
    """

    wire: str
    config: str
    size: int
    numpy: str
    code: str


_TABLE = (
    DataType("BOOL", "TYPE_BOOL", 1, "?", ""),
    DataType("UINT8", "TYPE_UINT8", 1, "<u1", "B"),
    DataType("UINT16", "TYPE_UINT16", 2, "<u2", "H"),
    DataType("UINT32", "TYPE_UINT32", 4, "<u4", "I"),
    DataType("UINT64", "TYPE_UINT64", 8, "<u8", "Q"),
    DataType("INT8", "TYPE_INT8", 1, "<i1", "b"),
    DataType("INT16", "TYPE_INT16", 2, "<i2", "h"),
    DataType("INT32", "TYPE_INT32", 4, "<i4", "i"),
    DataType("INT64", "TYPE_INT64", 8, "<i8", "q"),
    DataType("FP16", "TYPE_FP16", 2, "<f2", ""),
    DataType("BF16", "TYPE_BF16", 2, "", ""),
    DataType("FP32", "TYPE_FP32", 4, "<f4", "f"),
    DataType("FP64", "TYPE_FP64", 8, "<f8", "d"),
    DataType("BYTES", "TYPE_STRING", 0, "object", ""),
)

BY_WIRE_NAME = {datatype.wire: datatype for datatype in _TABLE}
BY_CONFIG_NAME = {datatype.config: datatype for datatype in _TABLE}
