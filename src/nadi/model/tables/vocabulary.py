"""What stands in columns where there is a choice: kinds, types, categories."""

from __future__ import annotations

from nadi.model.protobuf_values import VALUE_TYPES

__all__ = [
    "ATTRIBUTE_TYPES",
    "CATEGORIES",
    "COMM_TYPES",
    "DEP_KINDS",
    "DEVICE_WORK",
    "GIVEN_DEPS",
    "LABELS",
    "NODE_KINDS",
    "ON_DEVICE",
    "SEVERITIES",
    "TENSOR_DEPS",
    "THREAD_WORK",
    "UNBOUNDED",
    "UNREADABLE",
]

NODE_KINDS = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
)
CATEGORIES = (
    "metadata",
    "annotation",
    "python",
    "operator",
    "runtime",
    "driver",
    "kernel",
    "memcpy",
    "memset",
    "sync",
    "device_annotation",
)
LABELS = ("annotation", "python")  # spans around operations, which do no work of their own
THREAD_WORK = ("annotation", "python", "operator", "runtime", "driver")
DEVICE_WORK = ("kernel", "memcpy", "memset")
ON_DEVICE = (*DEVICE_WORK, "sync", "device_annotation")  # all that is told of a device
COMM_TYPES = (
    "none",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "barrier",
    "send",
    "recv",
    "other",
)
DEP_KINDS = (
    "call",
    "order",
    "launch",
    "stream",
    "event",
    "sync",
    "thread",
    "comm",
    "raw",
    "war",
    "waw",
    "data",
    "ctrl",
)
TENSOR_DEPS = ("raw", "war", "waw")  # by what is read and written, whatever the order of issue
GIVEN_DEPS = ("data", "ctrl")  # stated by a file, whatever the times and the order of rows
# Chakra's types of values, and what else is kept of a file: raw JSON; texts of operands; a
# dependency on a node that is not there or that stands twice; a comment on the attribute
# before it; protobuf fields that this version does not know
ATTRIBUTE_TYPES = (
    *VALUE_TYPES,
    "none",
    "json",
    "operand",
    "dependency",
    "doc_string",
    "unknown",
)
UNBOUNDED = 2**62  # a shift of clocks without an upper bound; the negative of it without a lower
UNREADABLE = "unreadable"  # the type of an operand that stands for a text as a whole
SEVERITIES = ("info", "warning", "error")
