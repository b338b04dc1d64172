"""Perfetto's messages, as far as Nadi writes them, from their public definitions.

Built at run time from the field numbers of Perfetto's ``protos/perfetto/trace`` and read
by the protobuf package: an independent reading of what Nadi's own encoding wrote. Fields
that are not here would show up as unknown ones, which :func:`parse` refuses.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

__all__ = ["parse"]

# message -> fields: (name, number, type), a type in lower case being a scalar
MESSAGES = {
    "Trace": [("packet", 1, "*TracePacket")],
    "TracePacket": [
        ("clock_snapshot", 6, "ClockSnapshot"),
        ("timestamp", 8, "uint64"),
        ("trusted_packet_sequence_id", 10, "uint32"),
        ("track_event", 11, "TrackEvent"),
        ("interned_data", 12, "InternedData"),
        ("sequence_flags", 13, "uint32"),
        ("track_descriptor", 60, "TrackDescriptor"),
    ],
    "ClockSnapshot": [("clocks", 1, "*Clock"), ("primary_trace_clock", 2, "uint32")],
    "Clock": [("clock_id", 1, "uint32"), ("timestamp", 2, "uint64")],
    "TrackDescriptor": [
        ("uuid", 1, "uint64"),
        ("name", 2, "string"),
        ("process", 3, "ProcessDescriptor"),
        ("thread", 4, "ThreadDescriptor"),
        ("parent_uuid", 5, "uint64"),
        ("counter", 8, "CounterDescriptor"),
        ("child_ordering", 11, "uint32"),
        ("sibling_order_rank", 12, "int32"),
    ],
    "CounterDescriptor": [("unit_name", 6, "string")],
    "ProcessDescriptor": [("pid", 1, "int32"), ("process_name", 6, "string")],
    "ThreadDescriptor": [("pid", 1, "int32"), ("tid", 2, "int32")],
    "TrackEvent": [
        ("category_iids", 3, "*uint64"),
        ("debug_annotations", 4, "*DebugAnnotation"),
        ("type", 9, "uint32"),
        ("name_iid", 10, "uint64"),
        ("track_uuid", 11, "uint64"),
        ("counter_value", 30, "int64"),
        ("flow_ids", 47, "*fixed64"),
        ("terminating_flow_ids", 48, "*fixed64"),
    ],
    "DebugAnnotation": [
        ("name_iid", 1, "uint64"),
        ("int_value", 4, "int64"),
        ("string_value_iid", 17, "uint64"),
    ],
    "InternedData": [
        ("event_categories", 1, "*Text"),
        ("event_names", 2, "*Text"),
        ("debug_annotation_names", 3, "*Text"),
        ("debug_annotation_string_values", 29, "*Text"),
    ],
    "Text": [("iid", 1, "uint64"), ("name", 2, "string")],
}
_Field = descriptor_pb2.FieldDescriptorProto


def _message_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="p", syntax="proto2")
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, type_name in fields:
            field = described.field.add(name=name, number=number)
            repeated = type_name.startswith("*")
            field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            type_name = type_name.removeprefix("*")
            if type_name.islower():
                field.type = getattr(_Field, f"TYPE_{type_name.upper()}")
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".p.{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p.{name}"))
        for name in MESSAGES
    }


_CLASSES = _message_classes()


def parse(content: bytes) -> Any:
    """Parse a file; gives its packets.

    Raises
    ------
    ValueError
        If a message has a field that is not described here.
    """
    trace = _CLASSES["Trace"].FromString(content)
    _refuse_unknown(trace)
    return trace.packet


def _refuse_unknown(message: Any) -> None:
    if len(unknown_fields.UnknownFieldSet(message)):
        raise ValueError(f"unknown fields in {message!r}")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if not hasattr(value, "DESCRIPTOR") else [value]:
                _refuse_unknown(item)
