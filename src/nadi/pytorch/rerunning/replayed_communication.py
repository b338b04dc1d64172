"""Collectives and messages of a replay, among the processes that replay its ranks."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Communicator:
    """Makes the calls of c10d that a trace records; every rank has one.

    Parameters
    ----------
    groups
        For the number of each call the ranks of its process group; empty for all ranks.
    """

    def __init__(self, groups: Mapping[int, tuple[int, ...]]) -> None:
        self._distributed: Any = importlib.import_module("torch.distributed")
        self._ranks = groups
        self._groups: dict[tuple[int, ...], Any] = {}
        self._under_way: dict[int, Any] = {}

    def make_groups(self, all_groups: Sequence[tuple[int, ...]]) -> None:
        """Make the process groups of all ranks, in the same order everywhere."""
        for ranks in all_groups:
            if ranks and len(ranks) < self._distributed.get_world_size():
                self._groups[ranks] = self._distributed.new_group(list(ranks))

    def communicate(self, number: int, name: str, inputs: Sequence[Any]) -> None:
        """Begin a call; it has ended after :meth:`wait`, or at once if it was not asynchronous."""
        ranks = self._ranks.get(number, ())
        work = _CALLS[name](self._distributed, inputs, self._groups.get(ranks), ranks)
        if work is not None:
            self._under_way[number] = work

    def wait(self, number: int) -> None:
        """Wait until a call has ended."""
        work = self._under_way.pop(number, None)
        if work is not None:
            work.wait()

    def meet(self) -> None:
        """Wait until all ranks are here."""
        self._distributed.barrier()

    def wait_for_all(self) -> None:
        """Wait for all calls that are under way."""
        for number in list(self._under_way):
            self.wait(number)


_Call = Callable[[Any, Sequence[Any], Any, tuple[int, ...]], Any]


def _global(ranks: tuple[int, ...], position: int) -> int:
    return ranks[position] if ranks else position


def _all_reduce(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_reduce(inputs[0][0], group=group, async_op=True)


def _broadcast(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    root = _global(ranks, inputs[2])
    return distributed.broadcast(inputs[0][0], root, group=group, async_op=True)


def _reduce(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    root = _global(ranks, inputs[3])
    return distributed.reduce(inputs[0][0], root, group=group, async_op=True)


def _all_gather(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_gather(inputs[0][0], inputs[1][0], group=group, async_op=True)


def _all_gather_one(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_gather_into_tensor(inputs[0], inputs[1], group=group, async_op=True)


def _gather(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    parts = inputs[0][0] if inputs[0] else None
    root = _global(ranks, inputs[3])
    return distributed.gather(inputs[1][0], parts or None, root, group=group, async_op=True)


def _scatter(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    parts = inputs[1][0] if inputs[1] else None
    root = _global(ranks, inputs[3])
    return distributed.scatter(inputs[0][0], parts or None, root, group=group, async_op=True)


def _reduce_scatter(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.reduce_scatter(inputs[0][0], inputs[1][0], group=group, async_op=True)


def _reduce_scatter_one(
    distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]
) -> Any:
    return distributed.reduce_scatter_tensor(inputs[0], inputs[1], group=group, async_op=True)


def _all_to_all_one(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    given, sent = inputs[3] or None, inputs[4] or None
    return distributed.all_to_all_single(
        inputs[0], inputs[1], given, sent, group=group, async_op=True
    )


def _all_to_all(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_to_all(inputs[0], inputs[1], group=group, async_op=True)


def _barrier(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    del inputs
    return distributed.barrier(group=group, async_op=True)


def _send(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    return distributed.isend(inputs[0][0], _global(ranks, inputs[2]), group=group, tag=inputs[3])


def _receive(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    return distributed.irecv(inputs[0][0], _global(ranks, inputs[2]), group=group, tag=inputs[3])


_CALLS: dict[str, _Call] = {
    "allreduce_": _all_reduce,
    "broadcast_": _broadcast,
    "reduce_": _reduce,
    "allgather_": _all_gather,
    "_allgather_base_": _all_gather_one,
    "gather_": _gather,
    "scatter_": _scatter,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter_one,
    "alltoall_base_": _all_to_all_one,
    "alltoall_": _all_to_all,
    "barrier": _barrier,
    "send": _send,
    "recv_": _receive,
}


def can_communicate(name: str) -> bool:
    """Return whether a call of c10d, such as ``allreduce_``, can be replayed."""
    return name in _CALLS
