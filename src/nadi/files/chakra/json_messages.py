"""Convert Chakra's messages from JSON to protobuf's bytes, by protobuf's mapping to JSON.

Because the result has the bytes of an .et, one decoder serves both forms. JSON keys without a
field in the messages are collected separately.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from nadi.trace.attributes import AttributeBuilder
from nadi.trace.protobuf_values import (
    LIST_TYPES,
    TYPE_CODES,
    VALUE_TYPES,
    check_scalar,
    pack_list,
    pack_number,
    write_varint,
)
from nadi.trace.schema import NODE_KINDS

RawMessage = Mapping[str, msgspec.Raw]
_Value = TypeVar("_Value")
_ENUM_NAMES = {f"{name}_NODE": number for number, name in enumerate(NODE_KINDS)}
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LARGEST_ID = 2**62
_LARGEST_MICROSECONDS = (2**63 - 1) // 1000
_MOST_REMEMBERED = 1 << 16
_LARGEST_REMEMBERED = 1 << 8
# writing lengths is most of the work: short ones are written beforehand
_SIZES = [write_varint(size) for size in range(1 << 12)]
_DELIMITED = 2
_WIRES = {"double": 1, "fixed64": 1, "sfixed64": 1, "float": 5, "fixed32": 5, "sfixed32": 5,
          "string": _DELIMITED, "bytes": _DELIMITED}  # fmt: skip
# what the feeder's JSON says of a node, by the attribute that Chakra's messages have for it
FEEDER_ATTRIBUTES = {
    "is_cpu_op": "bool",
    "num_ops": "int64",
    "tensor_size": "uint64",
    "comm_type": "int64",
    "comm_priority": "int32",
    "comm_size": "int64",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
}

_decode_any = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class JsonMisfitError(Exception):
    """JSON that no message can hold; readers turn it into a FormatError."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{what} at {path}")
        self.path = path
        self.what = what


def camel_case(name: str) -> str:
    """Return a field's name in protobuf's JSON: ``int64Val`` for ``int64_val``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def both_names(fields: Mapping[str, _Value]) -> dict[str, _Value]:
    """Map each field from its name and from its name in protobuf's JSON."""
    return {**fields, **{camel_case(name): field for name, field in fields.items()}}


# type and whole tag of the value, by the key that holds it
_VALUES = both_names(
    {
        (name if name in LIST_TYPES else f"{name}_val"): (
            name,
            write_varint(TYPE_CODES[name] << 3 | (
                _DELIMITED if name in LIST_TYPES else _WIRES.get(name, 0)
            )),
        )
        for name in VALUE_TYPES
    }
)  # fmt: skip


class MessageWriter:
    """Writes messages one by one, and caches attributes that repeat.

    Attributes
    ----------
    beside
        Values without a field: attributes of type json, named by their keys.
    num_unknown
        Number of these values.
    """

    def __init__(self) -> None:
        self.beside = AttributeBuilder()
        self.num_unknown = 0
        self._row = -1
        self._remembered: dict[str, dict[bytes, bytes]] = {key: {} for key in _REPEATED | {"attr"}}

    def metadata(self, message: RawMessage) -> bytes:
        """Return a GlobalMetadata message, preceded by its length."""
        self._row = -1
        return self._message(message, _METADATA)

    def node(self, row: int, message: RawMessage) -> bytes:
        """Return a Node message, preceded by its length.

        - Raises MisfitError if a value has the wrong type or is too large; the error states its
          JSON path.
        """
        self._row = row
        return self._message(message, _NODE)

    def feeder_node(self, row: int, message: RawMessage) -> bytes:
        """Return a Node message for a node of the feeder's ``workload_graph``; see :meth:`node`."""
        self._row = row
        known: dict[int, bytes] = {}
        attributes = dict.fromkeys(FEEDER_ATTRIBUTES, b"")
        for key, raw in message.items():
            if key in attributes:
                value = _decoded(raw, f".{key}")
                if value is not None:
                    type_name = FEEDER_ATTRIBUTES[key]
                    content = _scalar_field(type_name, f"{type_name}_val", value, f".{key}")
                    attributes[key] = _field(10, _field(1, key.encode()) + content)
            elif (field := _FEEDER_NODE.get(key)) is not None:
                known[field[0]] = field[1](self, raw, f".{key}")
            else:
                self._keep(key, raw, f".{key}")
        known[10] = b"".join(attributes.values())
        return _delimited(b"".join(known[number] for number in sorted(known)))

    def keep(self, key: str, raw: msgspec.Raw) -> None:
        """Keep a value of the file that belongs to no message."""
        self._row = -1
        self._keep(key, raw, f".{key}")

    def _message(self, message: RawMessage, fields: Mapping[str, _Field]) -> bytes:
        parts: dict[int, bytes] = {}
        for key, raw in message.items():
            field = fields.get(key)
            if field is None:
                self._keep(key, raw, f".{key}")
                continue
            number, write = field
            if number in parts:
                raise JsonMisfitError(f".{key}", "the field occurs under both of its names")
            parts[number] = (
                self._again(key, raw, write) if key in _REPEATED else write(self, raw, f".{key}")
            )
        return _delimited(b"".join([parts[number] for number in sorted(parts)]))

    def _again(self, key: str, raw: msgspec.Raw, write: _Writer) -> bytes:
        """Return a field whose values repeat, mostly from the cache."""
        stored = bytes(raw)
        if len(stored) > _LARGEST_REMEMBERED:
            return write(self, raw, f".{key}")
        remembered = self._remembered[key]
        piece = remembered.get(stored)
        if piece is None:
            kept = self.num_unknown
            piece = write(self, raw, f".{key}")
            if kept == self.num_unknown and len(remembered) < _MOST_REMEMBERED:
                remembered[stored] = piece
        return piece

    def _keep(self, key: str, raw: msgspec.Raw, path: str) -> None:
        _decoded(raw, path)
        self.num_unknown += 1
        self.beside.add(self._row, key, "json", bytes(raw))

    def _attributes(self, tag: bytes, raw: msgspec.Raw, path: str) -> bytes:
        remembered = self._remembered["attr"]
        pieces = []
        for place, item in enumerate(_listed(raw, path)):
            stored = bytes(item)
            piece = remembered.get(stored)
            if piece is None:
                kept = self.num_unknown
                piece = _delimited(self._attribute(place, item, f"{path}[{place}]"))
                if kept == self.num_unknown and len(remembered) < _MOST_REMEMBERED:
                    remembered[stored] = piece
            pieces.append(piece)
        return tag + tag.join(pieces) if pieces else b""

    def _attribute(self, place: int, raw: msgspec.Raw, path: str) -> bytes:
        name = doc = value = b""
        value_key = ""
        for key, item in _object(raw, path).items():
            here = f"{path}.{key}"
            if key == "name":
                name = _text_field(1, _decoded(item, here), here)
            elif key in ("docString", "doc_string"):
                doc = _text_field(2, _decoded(item, here), here)
            elif key in _VALUES:
                given = _decoded(item, here)
                if given is None:
                    continue
                if value_key:
                    raise JsonMisfitError(here, f"the attribute already has the value {value_key}")
                value_key = key
                type_name = _VALUES[key][0]
                write = _list_field if type_name in LIST_TYPES else _scalar_field
                value = write(type_name, key, given, here)
            else:
                self._keep(f"attr[{place}].{key}", item, here)
        return name + doc + value

    def _operands(self, side: str, raw: msgspec.Raw, path: str) -> bytes:
        parts = {}
        for key, item in _object(raw, path).items():
            if key in _OPERANDS:
                parts[key] = _text_field(
                    _OPERANDS[key], _decoded(item, f"{path}.{key}"), f"{path}.{key}"
                )
            else:
                self._keep(f"{side}.{key}", item, f"{path}.{key}")
        return b"".join(parts[key] for key in _OPERANDS if key in parts)


_Writer = Callable[[MessageWriter, msgspec.Raw, str], bytes]
_Field = tuple[int, _Writer]
_REPEATED = frozenset({"name", "type", "inputs", "outputs"})
_OPERANDS = {"values": 1, "shapes": 2, "types": 3}


def _text(number: int) -> _Field:
    return number, lambda writer, raw, path: _text_field(number, _decoded(raw, path), path)


def _count(number: int, below: int) -> _Field:
    """Return number and writer of a field that holds a nonnegative integer."""
    tag = write_varint(number << 3)

    def write(writer: MessageWriter, raw: msgspec.Raw, path: str) -> bytes:
        value = _decoded(raw, path)
        if value is None:
            return b""
        return tag + write_varint(_checked_count(value, below, path))

    return number, write


def _ids(number: int) -> _Field:
    def write(writer: MessageWriter, raw: msgspec.Raw, path: str) -> bytes:
        values = _decoded(raw, path)
        if values is None:
            return b""
        if not isinstance(values, list):
            raise JsonMisfitError(path, f"expected a list of ids, got {_shown(values)}")
        ids = [
            write_varint(_checked_count(value, _LARGEST_ID, f"{path}[{place}]"))
            for place, value in enumerate(values)
        ]
        return _field(number, b"".join(ids)) if ids else b""

    return number, write


def _kind(number: int) -> _Field:
    tag = write_varint(number << 3)

    def write(writer: MessageWriter, raw: msgspec.Raw, path: str) -> bytes:
        value = _decoded(raw, path)
        if isinstance(value, str) and value in _ENUM_NAMES:
            value = _ENUM_NAMES[value]
        if value is None:
            return b""
        if isinstance(value, str):
            raise JsonMisfitError(
                path, f"expected a node type such as COMP_NODE, got {_shown(value)}"
            )
        return tag + pack_number("int32", _scalar("int32", value, path))

    return number, write


def _attribute_list(number: int) -> _Field:
    tag = write_varint(number << 3 | _DELIMITED)
    return number, lambda writer, raw, path: writer._attributes(tag, raw, path)


def _operand_texts(number: int, side: str) -> _Field:
    def write(writer: MessageWriter, raw: msgspec.Raw, path: str) -> bytes:
        if bytes(raw) == b"null":
            return b""
        return _field(number, writer._operands(side, raw, path))

    return number, write


_METADATA = {"version": _text(1), "attr": _attribute_list(2)}
_NODE = both_names({
    "id": _count(1, _LARGEST_ID),
    "name": _text(2),
    "type": _kind(3),
    "ctrl_deps": _ids(4),
    "data_deps": _ids(5),
    "start_time_micros": _count(6, _LARGEST_MICROSECONDS + 1),
    "duration_micros": _count(7, _LARGEST_MICROSECONDS + 1),
    "inputs": _operand_texts(8, "inputs"),
    "outputs": _operand_texts(9, "outputs"),
    "attr": _attribute_list(10),
})  # fmt: skip
_FEEDER_NODE = {
    "Id": _NODE["id"],
    "Name": _NODE["name"],
    "NodeType": _NODE["type"],
    "runtime": _NODE["duration_micros"],
    "data_deps": _NODE["data_deps"],
}


def _decoded(raw: msgspec.Raw, path: str) -> Any:
    try:
        return _decode_any(raw)
    except msgspec.MsgspecError as error:
        raise JsonMisfitError(path, str(error)) from None
    except RecursionError:
        raise JsonMisfitError(path, "nested too deeply") from None


def _object(raw: msgspec.Raw, path: str) -> RawMessage:
    try:
        return _decode_object(raw)
    except msgspec.MsgspecError as error:
        raise JsonMisfitError(path, str(error)) from None


def _listed(raw: msgspec.Raw, path: str) -> list[msgspec.Raw]:
    if bytes(raw) == b"null":
        return []
    try:
        return _decode_list(raw)
    except msgspec.MsgspecError as error:
        raise JsonMisfitError(path, str(error)) from None


def _delimited(content: bytes) -> bytes:
    size = len(content)
    return (_SIZES[size] if size < len(_SIZES) else write_varint(size)) + content


def _field(number: int, content: bytes) -> bytes:
    return _SIZES[number << 3 | _DELIMITED] + _delimited(content)


def _text_field(number: int, value: Any, path: str) -> bytes:
    if value is None or value == "":
        return b""
    if not isinstance(value, str):
        raise JsonMisfitError(path, f"expected a string, got {_shown(value)}")
    return _field(number, value.encode())


def _scalar_field(type_name: str, key: str, value: Any, path: str) -> bytes:
    checked = _scalar(type_name, value, path)
    tag: bytes = _VALUES[key][1]
    if type_name in ("string", "bytes"):
        return tag + _delimited(checked.encode() if type_name == "string" else checked)
    return tag + pack_number(type_name, checked)


def _list_field(type_name: str, key: str, value: Any, path: str) -> bytes:
    unknown = set(value) - {"values"} if isinstance(value, dict) else {"it"}
    if unknown:
        raise JsonMisfitError(path, f'expected an object with only "values", got {_shown(value)}')
    values = value.get("values")
    if not isinstance(values, list | None):
        raise JsonMisfitError(f"{path}.values", f"expected a list, got {_shown(values)}")
    item = type_name.removesuffix("_list")
    checked = [
        _scalar(item, entry, f"{path}.values[{place}]") for place, entry in enumerate(values or [])
    ]
    return bytes(_VALUES[key][1]) + _delimited(pack_list(type_name, checked))


def _checked_count(value: Any, below: int, path: str) -> int:
    plain = type(value) is str and len(value) <= 18 and value.isascii() and value.isdecimal()
    number: int = int(value) if plain else _scalar("uint64", value, path)
    if number >= below:
        raise JsonMisfitError(path, f"{number} is too large, the largest is {below - 1}")
    return number


def _scalar(type_name: str, value: Any, path: str) -> Any:
    """Return a JSON value as its protobuf type holds it; 64-bit numbers may be strings."""
    try:
        if type_name in ("double", "float"):
            return _float(type_name, value)
        if type_name == "bytes" and isinstance(value, str):
            return _from_base64(value)
        if type_name not in ("bool", "string", "bytes") and _is_whole(value):
            value = int(value)
        return check_scalar(type_name, value)
    except (ValueError, OverflowError):
        raise JsonMisfitError(path, f"expected {type_name}, got {_shown(value)}") from None


def _is_whole(value: Any) -> bool:
    """Return whether a value is an integer written as a string, or with a point or exponent."""
    if isinstance(value, str):
        return _INTEGER.fullmatch(value) is not None
    return isinstance(value, float) and value.is_integer()


def _float(type_name: str, value: Any) -> float:
    if isinstance(value, str):
        special = _SPECIAL.get(value)
        if special is not None:
            return special
        if not _NUMBER.fullmatch(value):
            raise ValueError(value)
        value = float(value)
    number = float(check_scalar(type_name, value))
    if math.isinf(number):
        raise OverflowError
    if type_name == "float":
        struct.pack("<f", number)  # OverflowError where it holds no such number
    return number


def _from_base64(text: str) -> bytes:
    """Decode base64, also the URL variant and without padding, as protobuf does."""
    standard = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
