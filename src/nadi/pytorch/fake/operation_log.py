"""What one rank does, row by row: operations, what they wait for, live memory, process groups.

Calls of torch.distributed's operators: type, tensors, and the place of root, peer and tag.
"""

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nadi.trace.groups import Group
from nadi.trace.work import Operands, covered_bytes

_DEVICE = "cuda:0"
_SCALAR_TYPES = {bool: "Bool", int: "Int", float: "Double", str: "String", type(None): "None"}


class LoggedOperand(NamedTuple):
    """A tensor that an operator reads or writes."""

    # tensor, storage: numbers of the tensor, and of its memory, which views share
    tensor: int
    storage: int
    offset: int  # of its first element in the storage, in elements
    # shape, strides: of each dimension
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str  # type of its elements, as an execution trace names it
    itemsize: int  # size of an element, in bytes

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of memory that it covers."""
        return covered_bytes(self.shape, self.strides, self.itemsize)


class LoggedOperation(NamedTuple):
    """One row: the columns of ``schema.NODES``, but for the group, which is a name."""

    name: str
    kind: str
    category: str
    parent: int = -1
    sequence: int = -1
    stream: int = -1  # -1 for what starts nothing on the device
    flops: int = -1
    bytes: int = -1
    comm_type: str = "none"
    comm_bytes: int = -1
    group: str = ""
    src: int = -1
    dst: int = -1
    tag: int = -1
    is_async: int = -1


class _Storage:
    """Who wrote and read a storage last."""

    __slots__ = ("readers", "writer")

    def __init__(self) -> None:
        self.writer = -1
        self.readers: dict[int, int] = {}  # the last of each stream since then


class OperationLog:
    """Collects the operations of a rank while its program runs.

    Attributes
    ----------
    operations
        One per row.
    waits
        For each row, rows and kinds of what it waits for.
    operands
        Texts of inputs and outputs, by row.
    attributes
        Further values, by row.
    live, peak, peak_row
        Bytes of live tensors now, at most, and the row in which that was reached.
    """

    def __init__(self) -> None:
        self.live = 0
        self._bytes: dict[int, int] = {}  # of each live storage
        self.clear()

    def clear(self) -> None:
        """Forget all rows; what is in memory stays."""
        self.operations: list[LoggedOperation] = []
        self.waits: list[tuple[tuple[int, str], ...]] = []
        self.operands: dict[int, dict[str, str]] = {}
        self.attributes: dict[int, dict[str, tuple[str, Any]]] = {}
        self.allocated: list[tuple[int, int, int]] = []  # row, storage, bytes
        self.freed: list[tuple[int, int]] = []  # row, storage
        self.peak, self.peak_row, self.first_live = self.live, -1, self.live
        self._storages: dict[int, _Storage] = {}
        self._last: dict[int, int] = {}  # row of each stream
        self._waiting: dict[int, set[int]] = {}  # rows that the next one of a stream waits for

    def __len__(self) -> int:
        return len(self.operations)

    def annotate(self, name: str, category: str, parent: int) -> int:
        """Begin a range around operations; return its row."""
        self.operations.append(LoggedOperation(name, "METADATA", category, parent))
        self.waits.append(())
        return len(self.operations) - 1

    def add(
        self, operation: LoggedOperation, inputs: Sequence[Any], outputs: Sequence[Any],
        reads: Iterable[LoggedOperand], writes: Iterable[LoggedOperand],
    ) -> int:  # fmt: skip
        """Append an operation; return its row.

        - ``inputs``, ``outputs``: Tensors, scalars, and lists of these, as the trace will show
          them.
        - ``reads``, ``writes``: The tensors whose memory it uses.
        """
        row = len(self.operations)
        self.operations.append(operation)
        self.operands[row] = logged_operand_texts("inputs", inputs) | logged_operand_texts(
            "outputs", outputs
        )
        if operation.stream < 0:
            self.waits.append(())
            return row
        found: dict[int, str] = {}
        for storage in dict.fromkeys(one.storage for one in reads):
            self._read(storage, row, operation.stream, found)
        for storage in dict.fromkeys(one.storage for one in writes):
            self._write(storage, row, operation.stream, found)
        for before in sorted(self._waiting.pop(operation.stream, ())):
            found.setdefault(before, "ctrl")
        if operation.stream in self._last:
            found.setdefault(self._last[operation.stream], "ctrl")
        self._last[operation.stream] = row
        self.waits.append(tuple(sorted(found.items())))
        return row

    def last_of(self, stream: int) -> int:
        """Return the last row of a stream, or -1."""
        return self._last.get(stream, -1)

    def writer_of(self, storage: int) -> int:
        """Return the row that wrote a storage last, or -1."""
        known = self._storages.get(storage)
        return -1 if known is None else known.writer

    def wait(self, stream: int, row: int) -> None:
        """Let the next operation of a stream wait for a row, as for a recorded event."""
        if row >= 0:
            self._waiting.setdefault(stream, set()).add(row)

    def allocate(self, storage: int, size: int) -> None:
        """Count the memory of a new storage, or a new size of one."""
        before = self._bytes.get(storage, 0)
        if size == before:
            return
        self._bytes[storage] = size
        self.live += size - before
        if self.live > self.peak:
            self.peak, self.peak_row = self.live, len(self.operations)
        if size:
            self.allocated.append((len(self.operations), storage, size))
        else:
            self.freed.append((len(self.operations) - 1, storage))

    def free(self, storage: int) -> None:
        """Count the memory of a storage as free."""
        size = self._bytes.pop(storage, 0)
        self.live -= size
        if size:
            self.freed.append((len(self.operations) - 1, storage))

    def _read(self, storage: int, row: int, stream: int, found: dict[int, str]) -> None:
        known = self._storages.get(storage)
        if known is None:
            known = self._storages[storage] = _Storage()
        if known.writer >= 0:
            found[known.writer] = "data"
        known.readers[stream] = row

    def _write(self, storage: int, row: int, stream: int, found: dict[int, str]) -> None:
        known = self._storages.get(storage)
        if known is None:
            known = self._storages[storage] = _Storage()
        if known.writer >= 0:
            found[known.writer] = "data"
        for other, reader in known.readers.items():
            if other != stream:  # on its own stream it comes after them anyway
                found[reader] = "data"
        known.writer = row
        known.readers.clear()


def nested_tensors(value: Any) -> list[LoggedOperand]:
    """Return the tensors of nested lists, in order."""
    if isinstance(value, LoggedOperand):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in nested_tensors(item)]
    return []


def operands_of(given: Sequence[Any], written: Sequence[LoggedOperand]) -> Operands:
    """Return the operands of a call, as its work depends on them.

    - ``given``: Tensors, scalars, and lists of these, by place.
    - ``written``: The tensors that it makes or changes.
    """
    by_place = [nested_tensors(value) for value in given]
    known: set[LoggedOperand] = set()
    sizes = []
    for tensors in by_place:  # what is given twice is read once
        sizes.append(sum(one.bytes for one in dict.fromkeys(tensors) if one not in known))
        known.update(tensors)
    return Operands(
        [value.shape if isinstance(value, LoggedOperand) else () for value in given], sizes,
        [tensors[0].itemsize if tensors else 0 for tensors in by_place],
        ["" if tensors else str(value) for value, tensors in zip(given, by_place, strict=True)],
        [one.shape for one in written], sum(one.bytes for one in written),
    )  # fmt: skip


def logged_operand_texts(side: str, values: Sequence[Any]) -> dict[str, str]:
    """Return the texts of operands as an execution trace has them: JSON, by name of attribute."""
    columns = [_described(value) for value in values]
    kinds = zip(("values", "shapes", "types", "strides"), zip(*columns, strict=True), strict=False)
    return {f"{side}.{kind}": msgspec.json.encode(column).decode() for kind, column in kinds}


def _described(value: Any) -> tuple[Any, Any, str, Any]:
    """Return value, shape, type and strides of an operand."""
    if isinstance(value, LoggedOperand):
        held = [value.tensor, value.storage, value.offset, value.elements, value.itemsize, _DEVICE]
        return held, value.shape, f"Tensor({value.dtype})", value.strides
    if isinstance(value, (list, tuple)):
        items = [_described(item) for item in value]
        types = ",".join(item[2] for item in items)
        return (
            [item[0] for item in items], [item[1] for item in items], f"GenericList[{types}]",
            [item[3] for item in items],
        )  # fmt: skip
    if type(value) in _SCALAR_TYPES:
        shown = "<None>" if value is None else value
        if isinstance(value, float) and not isfinite(value):
            shown = repr(value)  # JSON has no such number
        return shown, [], _SCALAR_TYPES[type(value)], []
    return f"<{type(value).__name__}>", [], "Object", []


class Call(NamedTuple):
    """Where the arguments of an operator stand."""

    comm_type: str  # as in ``schema.COMM_TYPES``
    # reads, writes: positions of tensors that are sent and that are received; -1 for none, and
    # ``RESULT`` where the result of the call is what is received
    reads: int
    writes: int
    group: int  # position of the process group or of its name
    # peer, tag: positions of the root or the other end, and of the tag; -1 for none
    peer: int = -1
    tag: int = -1
    # position of a flag; ``ALWAYS`` if the call never waits, -1 if it always does
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


def comm_bytes(
    call: Call, reads: Sequence[LoggedOperand], writes: Sequence[LoggedOperand], size: int
) -> int:
    """Return what a member contributes; of a broadcast and a scatter, what the root has.

    - ``size``: Number of members.
    """
    if call.comm_type == "barrier":
        return 0
    if call.comm_type == "scatter":
        return size * sum(one.elements * one.itemsize for one in writes)
    return sum(one.elements * one.itemsize for one in (reads or writes))


_OWN = str(Path(__file__).resolve().parents[2])
_LIBRARIES = (
    _OWN, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<frozen", "<string",
)  # fmt: skip


def is_of_library(file: str) -> bool:
    """Return whether a file of code is of Python, of a package, or of Nadi."""
    return file.startswith(_LIBRARIES)


def script_line() -> str:
    """Return file and line of the innermost call that is in no library: ``train.py:12``."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_of_library(file):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "the program"


@dataclass
class GroupFamily:
    """Groups that were made at one place of a program: what one rank uses, others have, too.

    Attributes
    ----------
    place
        What identifies it: the description of the groups, or the line that made them.
    groups
        Members of each, without repetitions.
    known
        The same, to look up.
    """

    place: str
    groups: list[tuple[int, ...]] = field(default_factory=list)
    known: set[tuple[int, ...]] = field(default_factory=set, repr=False)


class GroupLog:
    """The process groups of a job, as one rank sees them being made.

    Attributes
    ----------
    rank, world_size
        Of the rank.
    families
        By place, in the order in which they were made.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.families: dict[str, GroupFamily] = {}
        self.named: dict[str, Group] = {}
        self.world = Group("0", tuple(range(world_size)), "default_pg")

    def made(self, ranks: Iterable[int], place: str) -> None:
        """Note that a group is made, whether or not this rank is in it."""
        family = self.families.setdefault(place, GroupFamily(place))
        if tuple(ranks) not in family.known:
            family.known.add(tuple(ranks))
            family.groups.append(tuple(ranks))

    def named_as(self, name: str, ranks: Sequence[int], description: str) -> None:
        """Note the name that a group of this rank got."""
        self.named[name] = Group(name, tuple(ranks), description)

    def of(self, given: Any) -> Group:
        """Return the group of a ProcessGroup, of its boxed form or of its name."""
        name = given if isinstance(given, str) else self._name_of(given)
        if name not in self.named:
            return self.world
        return self.named[name]

    def family_of(self, group: Group) -> GroupFamily | None:
        """Return the family of a group; None for the group of all ranks."""
        if len(group.ranks) == self.world_size:
            return None
        return next((one for one in self.families.values() if group.ranks in one.groups), None)

    @staticmethod
    def _name_of(given: Any) -> str:
        if not hasattr(given, "group_name"):
            import importlib

            given = importlib.import_module("torch._C._distributed_c10d").ProcessGroup.unbox(given)
        return str(given.group_name)
