"""The values of categorical columns: kinds, types, categories."""

from __future__ import annotations

from nadi.trace.protobuf_values import VALUE_TYPES

__all__ = [
    "ATTRIBUTE_TYPES",
    "CATEGORIES",
    "COMMUNICATION_KINDS",
    "COMM_TYPES",
    "DEP_KINDS",
    "DEVICE_WORK",
    "GIVEN_DEPS",
    "LABELS",
    "NODE_KINDS",
    "ON_DEVICE",
    "PART",
    "ROLE_SOURCES",
    "SEVERITIES",
    "TENSOR_DEPS",
    "TENSOR_ROLES",
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
COMMUNICATION_KINDS = ("COMM_COLL", "COMM_SEND", "COMM_RECV")
LABELS = ("annotation", "python")  # ranges around operations, which do no work of their own
THREAD_WORK = ("annotation", "python", "operator", "runtime", "driver")
DEVICE_WORK = ("kernel", "memcpy", "memset")
ON_DEVICE = (*DEVICE_WORK, "sync", "device_annotation")  # every category of a device
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
TENSOR_DEPS = (
    "raw",
    "war",
    "waw",
)  # derived from tensors read and written, regardless of the order of issue
GIVEN_DEPS = ("data", "ctrl")  # stated by a file, regardless of times and row order
# Chakra's types of values, and everything else that is kept of a file: raw JSON; texts of operands;
# a dependency on a missing node, or a repeated one; a comment on the attribute before it;
# protobuf fields unknown to this version
ATTRIBUTE_TYPES = (
    *VALUE_TYPES,
    "none",
    "json",
    "operand",
    "dependency",
    "doc_string",
    "unknown",
)
UNBOUNDED = 2**62  # a clock shift without an upper bound; negative for one without a lower bound
PART = "nadi_part"  # the attribute of a trace that is a part of another: what crosses its border
UNREADABLE = "unreadable"  # the type of an operand that holds a whole text that cannot be parsed
SEVERITIES = ("info", "warning", "error")
# what tensors are for; kv is the cache of keys and values of inference, prefix what sequences share
TENSOR_ROLES = (
    "weights", "gradients", "optimizer", "activations", "kv", "other", "prefix", "tables",
)  # fmt: skip
ROLE_SOURCES = ("stated", "inferred")
