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
        typecode: ``array`` type code that a JSON number is read through; ``""`` if JSON numbers do not fit.
    """

    wire: str
    config: str
    size: int
    numpy: str
    typecode: str

    @property
    def read_size(self) -> int:
        """Bytes of one element as it is read from JSON, before it is cut to ``size``."""
        return {"q": 8, "Q": 8, "d": 8, "f": 4}.get(self.typecode, self.size)


_TABLE = (
    DataType("BOOL", "TYPE_BOOL", 1, "?", ""),
    DataType("UINT8", "TYPE_UINT8", 1, "<u1", "Q"),
    DataType("UINT16", "TYPE_UINT16", 2, "<u2", "Q"),
    DataType("UINT32", "TYPE_UINT32", 4, "<u4", "Q"),
    DataType("UINT64", "TYPE_UINT64", 8, "<u8", "Q"),
    DataType("INT8", "TYPE_INT8", 1, "<i1", "q"),
    DataType("INT16", "TYPE_INT16", 2, "<i2", "q"),
    DataType("INT32", "TYPE_INT32", 4, "<i4", "q"),
    DataType("INT64", "TYPE_INT64", 8, "<i8", "q"),
    DataType("FP16", "TYPE_FP16", 2, "<f2", ""),
    DataType("BF16", "TYPE_BF16", 2, "", ""),
    DataType("FP32", "TYPE_FP32", 4, "<f4", "f"),
    DataType("FP64", "TYPE_FP64", 8, "<f8", "d"),
    DataType("BYTES", "TYPE_STRING", 0, "object", ""),
)

BY_WIRE_NAME = {datatype.wire: datatype for datatype in _TABLE}
BY_CONFIG_NAME = {datatype.config: datatype for datatype in _TABLE}
