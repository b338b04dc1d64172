"""Chakra's protobuf messages, made from its schema 0.0.4 by the protobuf package.

The slow and independent reading of ``.et`` files that tests compare Nadi's own codec with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.decoder import _DecodeVarint32
from google.protobuf.internal.encoder import _VarintBytes

__all__ = [
    "COLLECTIVE_TYPES",
    "NODE_TYPES",
    "AttributeProto",
    "GlobalMetadata",
    "IOInfo",
    "Node",
    "attribute_value",
    "read_messages",
    "write_messages",
]

_PACKAGE = "ChakraProtoMsg"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
COLLECTIVE_TYPES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL",
    "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip


def _list_message(scalar: str) -> str:
    return f"{scalar.capitalize()}List"


def _add_field(
    message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: str, *, many: bool
) -> descriptor_pb2.FieldDescriptorProto:
    """Add a field; ``kind`` is a scalar's name, or that of a message or enum after a dot."""
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
    if kind.startswith("."):
        field.type_name = f".{_PACKAGE}{kind}"
        field.type = _Field.TYPE_ENUM if kind == ".NodeType" else _Field.TYPE_MESSAGE
    else:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    return field


def _schema() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="et_def.proto", package=_PACKAGE, syntax="proto3"
    )
    node_type = file.enum_type.add(name="NodeType")
    for number, name in enumerate(NODE_TYPES):
        node_type.value.add(name=name, number=number)
    for scalar in _SCALARS:
        _add_field(
            file.message_type.add(name=_list_message(scalar)), 1, "values", scalar, many=True
        )
    attribute = file.message_type.add(name="AttributeProto")
    _add_field(attribute, 1, "name", "string", many=False)
    _add_field(attribute, 2, "doc_string", "string", many=False)
    attribute.oneof_decl.add(name="value")
    for position, scalar in enumerate(_SCALARS):
        for offset, name, kind in (
            (0, f"{scalar}_val", scalar),
            (1, f"{scalar}_list", f".{_list_message(scalar)}"),
        ):
            field = _add_field(attribute, 3 + 2 * position + offset, name, kind, many=False)
            field.oneof_index = 0
    metadata = file.message_type.add(name="GlobalMetadata")
    _add_field(metadata, 1, "version", "string", many=False)
    _add_field(metadata, 2, "attr", ".AttributeProto", many=True)
    operands = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        _add_field(operands, number, name, "string", many=False)
    node = file.message_type.add(name="Node")
    for number, (name, kind, many) in enumerate(
        (
            ("id", "uint64", False), ("name", "string", False), ("type", ".NodeType", False),
            ("ctrl_deps", "uint64", True), ("data_deps", "uint64", True),
            ("start_time_micros", "uint64", False), ("duration_micros", "uint64", False),
            ("inputs", ".IOInfo", False), ("outputs", ".IOInfo", False),
            ("attr", ".AttributeProto", True),
        ),
        start=1,
    ):  # fmt: skip
        _add_field(node, number, name, kind, many=many)
    return file


_classes: dict[str, Any] = message_factory.GetMessages(
    [_schema()], pool=descriptor_pool.DescriptorPool()
)
GlobalMetadata = _classes[f"{_PACKAGE}.GlobalMetadata"]
Node = _classes[f"{_PACKAGE}.Node"]
AttributeProto = _classes[f"{_PACKAGE}.AttributeProto"]
IOInfo = _classes[f"{_PACKAGE}.IOInfo"]


def read_messages(content: bytes) -> tuple[Any, list[Any]]:
    """Decode an uncompressed ``.et`` file: its metadata and its nodes, in the file's order."""
    pieces = []
    at = 0
    while at < len(content):
        length, at = _DecodeVarint32(content, at)
        assert at + length <= len(content), "the last message is cut off"
        pieces.append(content[at : at + length])
        at += length
    return GlobalMetadata.FromString(pieces[0]), [Node.FromString(piece) for piece in pieces[1:]]


def write_messages(metadata: Any, nodes: Iterable[Any]) -> bytes:
    """Encode an uncompressed ``.et`` file."""
    pieces = [message.SerializeToString() for message in (metadata, *nodes)]
    return b"".join(_VarintBytes(len(piece)) + piece for piece in pieces)


def attribute_value(attribute: Any) -> tuple[str, Any]:
    """Give an attribute's type, as ``nadi.trace.protobuf_values`` names it, and its value."""
    field = attribute.WhichOneof("value")
    if field is None:
        return "none", None
    value = getattr(attribute, field)
    if field.endswith("_list"):
        return field, list(value.values)
    return field.removesuffix("_val"), value
