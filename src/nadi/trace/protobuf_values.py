"""Encode and decode single attribute values in protobuf's format, in plain Python.

Chakra gives every attribute one of thirty types: fifteen scalars and a list of each.
Kernels in :mod:`nadi.files.chakra` read and write whole files; this module handles
the few values that are accessed one by one.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

SCALAR_TYPES = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
LIST_TYPES = tuple(f"{name}_list" for name in SCALAR_TYPES)
# in the order of protobuf's field numbers, which begin at 3: scalar and list alternate
VALUE_TYPES = tuple(name for pair in zip(SCALAR_TYPES, LIST_TYPES, strict=True) for name in pair)
TYPE_CODES = {name: number for number, name in enumerate(VALUE_TYPES, start=3)}

_FIXED = {
    "double": "<d", "float": "<f", "fixed32": "<I", "fixed64": "<Q", "sfixed32": "<i",
    "sfixed64": "<q",
}  # fmt: skip
RANGES = {
    "int32": (-(2**31), 2**31), "int64": (-(2**63), 2**63), "uint32": (0, 2**32),
    "uint64": (0, 2**64), "sint32": (-(2**31), 2**31), "sint64": (-(2**63), 2**63),
    "fixed32": (0, 2**32), "fixed64": (0, 2**64), "sfixed32": (-(2**31), 2**31),
    "sfixed64": (-(2**63), 2**63),
}  # fmt: skip
_WORD = 2**64
_LENGTH_DELIMITED = 2
_VALUES_FIELD = 1


def check_scalar(type_name: str, value: Any) -> Any:
    """Return ``value`` converted to the type.

    - Raises ValueError if the type cannot hold it.
    """
    if type_name in RANGES:
        low, high = RANGES[type_name]
        if isinstance(value, int) and not isinstance(value, bool) and low <= value < high:
            return value
    elif type_name == "bool":
        if isinstance(value, bool):
            return value
    elif type_name in ("double", "float"):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif type_name == "string" and isinstance(value, str):
        value.encode()
        return value
    elif type_name == "bytes" and isinstance(value, bytes):
        return value
    raise ValueError(f"{str(value)[:40]!r} is not a valid {type_name}")


def bits_of(type_name: str, value: Any) -> int:
    """Return a number's bits as a signed 64-bit integer: floats as stored, others by value."""
    if type_name == "double":
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    if type_name == "float":
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    number = int(value)
    return number - _WORD if number >= _WORD // 2 else number


def value_of(type_name: str, bits: int) -> int | float | bool:
    """Return the number with the bits that :func:`bits_of` returned."""
    if type_name == "double":
        return float(struct.unpack("<d", struct.pack("<q", bits))[0])
    if type_name == "float":
        return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])
    if type_name == "bool":
        return bits != 0
    return bits % _WORD if type_name in ("uint64", "fixed64") else bits


def pack_list(list_type: str, values: Sequence[Any]) -> bytes:
    """Encode a list as the content of its protobuf message (``repeated values = 1``)."""
    item = list_type.removesuffix("_list")
    if not values:
        return b""
    if item in ("string", "bytes"):
        texts = (value.encode() if isinstance(value, str) else value for value in values)
        return b"".join(_delimited(text) for text in texts)
    return _delimited(b"".join(pack_number(item, value) for value in values))


def _delimited(content: bytes) -> bytes:
    tag = _VALUES_FIELD << 3 | _LENGTH_DELIMITED
    return bytes([tag]) + write_varint(len(content)) + content


def pack_number(item: str, value: Any) -> bytes:
    """Encode a number or bool without its field: fixed bytes, or a varint."""
    if item in _FIXED:
        return struct.pack(_FIXED[item], value)
    number = int(value)
    if item in ("sint32", "sint64"):
        number = number * 2 if number >= 0 else -number * 2 - 1
    return write_varint(number % _WORD)


def unpack_list(list_type: str, content: bytes) -> list[Any]:
    """Decode the result of :func:`pack_list`, packed or not, skipping unknown fields.

    - Raises ValueError if the content is not such a message.
    """
    item = list_type.removesuffix("_list")
    values: list[Any] = []
    at = 0
    while at < len(content):
        tag, at = read_varint(content, at)
        field, wire = tag >> 3, tag & 7
        payload, at = _read_payload(content, at, wire)
        if field != _VALUES_FIELD:
            continue
        if item in ("string", "bytes"):
            values.append(payload.decode() if item == "string" else payload)
        else:
            values += _unpack_numbers(item, payload)
    return values


def _read_payload(content: bytes, at: int, wire: int) -> tuple[bytes, int]:
    """Return one field's bytes and where the next field starts."""
    if wire == 0:
        _, end = read_varint(content, at)
    elif wire in (1, 5):
        end = at + (8 if wire == 1 else 4)
    elif wire == _LENGTH_DELIMITED:
        length, at = read_varint(content, at)
        end = at + length
    else:
        raise ValueError(f"wire type {wire} is not used by protobuf 3")
    if end > len(content):
        raise ValueError("a field ends after its message")
    return content[at:end], end


def _unpack_numbers(item: str, packed: bytes) -> list[Any]:
    if item in _FIXED:
        form = _FIXED[item]
        if len(packed) % struct.calcsize(form):
            raise ValueError(f"{len(packed)} bytes are not a multiple of the size of {item}")
        return [value for (value,) in struct.iter_unpack(form, packed)]
    values: list[Any] = []
    at = 0
    while at < len(packed):
        number, at = read_varint(packed, at)
        values.append(_NUMBERS[item](number))
    return values


def _signed(number: int, bits: int) -> int:
    number %= 1 << bits
    return number - (1 << bits) if number >> (bits - 1) else number


def _zigzag(number: int) -> int:
    return number >> 1 if number % 2 == 0 else -(number >> 1) - 1


_NUMBERS: dict[str, Callable[[int], int | bool]] = {
    "int32": lambda number: _signed(number, 32),
    "int64": lambda number: _signed(number, 64),
    "uint32": lambda number: number % 2**32,
    "uint64": lambda number: number,
    "sint32": lambda number: _zigzag(number % 2**32),
    "sint64": _zigzag,
    "bool": bool,
}


def write_varint(number: int) -> bytes:
    """Encode an integer of 0 or more, seven bits to a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Decode an integer at ``at``; returns it, of 64 bits, and where the next byte is."""
    number = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return number % _WORD, at
    raise ValueError("a number is cut off")
