"""Calls of torch.distributed's operators: type, tensors, and the place of root, peer and tag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nadi.pytorch.fake.operation_log import Operand

__all__ = ["CALLS", "Call", "comm_bytes"]


class Call(NamedTuple):
    """Where the arguments of an operator stand.

    Attributes
    ----------
    comm_type
        As in ``schema.COMM_TYPES``.
    reads, writes
        Positions of tensors that are sent and that are received; -1 for none, and
        :data:`RESULT` where the result of the call is what is received.
    group
        Position of the process group or of its name.
    peer, tag
        Positions of the root or the other end, and of the tag; -1 for none.
    is_async
        Position of a flag; :data:`ALWAYS` if the call never waits, -1 if it always does.
    """

    comm_type: str
    reads: int
    writes: int
    group: int
    peer: int = -1
    tag: int = -1
    is_async: int = -1


RESULT = -2
ALWAYS = -2

CALLS = {
    "c10d::allreduce_": Call("all_reduce", 0, 0, 1, is_async=4),
    "c10d::allreduce_coalesced_": Call("all_reduce", 0, 0, 1, is_async=3),
    "c10d::broadcast_": Call("broadcast", 0, 0, 1, peer=2, is_async=4),
    "c10d::reduce_": Call("reduce", 0, 0, 1, peer=3, is_async=5),
    "c10d::allgather_": Call("all_gather", 1, 0, 2, is_async=3),
    "c10d::_allgather_base_": Call("all_gather", 1, 0, 2, is_async=3),
    "c10d::allgather_coalesced_": Call("all_gather", 1, 0, 2, is_async=3),
    "c10d::allgather_into_tensor_coalesced_": Call("all_gather", 1, 0, 2, is_async=3),
    "c10d::reduce_scatter_": Call("reduce_scatter", 1, 0, 2, is_async=4),
    "c10d::_reduce_scatter_base_": Call("reduce_scatter", 1, 0, 2, is_async=4),
    "c10d::reduce_scatter_tensor_coalesced_": Call("reduce_scatter", 1, 0, 2, is_async=4),
    "c10d::gather_": Call("gather", 1, 0, 2, peer=3, is_async=4),
    "c10d::scatter_": Call("scatter", 1, 0, 2, peer=3, is_async=4),
    "c10d::alltoall_": Call("all_to_all", 1, 0, 2, is_async=3),
    "c10d::alltoall_base_": Call("all_to_all", 1, 0, 2, is_async=5),
    "c10d::barrier": Call("barrier", -1, -1, 1, is_async=3),
    "c10d::monitored_barrier_": Call("barrier", -1, -1, 1),
    "c10d::send": Call("send", 0, -1, 1, peer=2, tag=3, is_async=ALWAYS),
    "c10d::recv_": Call("recv", -1, 0, 1, peer=2, tag=3, is_async=ALWAYS),
    "c10d::recv_any_source_": Call("recv", -1, 0, 1, tag=2, is_async=ALWAYS),
    "_c10d_functional::all_reduce": Call("all_reduce", 0, RESULT, 2, is_async=ALWAYS),
    "_c10d_functional::all_reduce_": Call("all_reduce", 0, 0, 2, is_async=ALWAYS),
    "_c10d_functional::all_reduce_coalesced": Call("all_reduce", 0, RESULT, 2, is_async=ALWAYS),
    "_c10d_functional::all_reduce_coalesced_": Call("all_reduce", 0, 0, 2, is_async=ALWAYS),
    "_c10d_functional::all_gather_into_tensor":
        Call("all_gather", 0, RESULT, 2, is_async=ALWAYS),
    "_c10d_functional::all_gather_into_tensor_out":
        Call("all_gather", 0, RESULT, 2, is_async=ALWAYS),
    "_c10d_functional::all_gather_into_tensor_coalesced":
        Call("all_gather", 0, RESULT, 2, is_async=ALWAYS),
    "_c10d_functional::reduce_scatter_tensor":
        Call("reduce_scatter", 0, RESULT, 3, is_async=ALWAYS),
    "_c10d_functional::reduce_scatter_tensor_out":
        Call("reduce_scatter", 0, RESULT, 3, is_async=ALWAYS),
    "_c10d_functional::reduce_scatter_tensor_coalesced":
        Call("reduce_scatter", 0, RESULT, 3, is_async=ALWAYS),
    "_c10d_functional::all_to_all_single": Call("all_to_all", 0, RESULT, 3, is_async=ALWAYS),
    "_c10d_functional::broadcast": Call("broadcast", 0, RESULT, 2, peer=1, is_async=ALWAYS),
    "_c10d_functional::broadcast_": Call("broadcast", 0, 0, 2, peer=1, is_async=ALWAYS),
    "_c10d_functional::isend": Call("send", 0, -1, 3, peer=1, tag=2, is_async=ALWAYS),
    "_c10d_functional::irecv": Call("recv", -1, 0, 3, peer=1, tag=2, is_async=ALWAYS),
}  # fmt: skip


def comm_bytes(call: Call, reads: Sequence[Operand], writes: Sequence[Operand], size: int) -> int:
    """Return what a member contributes; of a broadcast and a scatter, what the root has.

    Parameters
    ----------
    size
        Number of members.
    """
    if call.comm_type == "barrier":
        return 0
    if call.comm_type == "scatter":
        return size * sum(one.elements * one.itemsize for one in writes)
    return sum(one.elements * one.itemsize for one in (reads or writes))
