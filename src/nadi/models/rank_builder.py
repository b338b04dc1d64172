"""What a rank does, call by call: computation, memory, messages and collectives."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nadi.models.given_values import (
    Tensor,
    checked_name,
    nanoseconds,
    new_tensor,
    number,
    refusal,
    size,
    total_bytes,
    whole,
)
from nadi.models.rank_program import WORLD, After, BuiltNode, Group, Operation, Place, RankProgram
from nadi.trace.collectives import COLLECTIVES

_LARGEST_TAG = 2**31 - 1
_LARGEST_PLACE = 2**62
_MANY = 8  # groups that a message lists
Tensors = Tensor | Iterable[Tensor]


class Lane:
    """A thread or a stream of a rank, whose nodes run one after the other.

    Get one from :meth:`RankBuilder.stream`, :meth:`RankBuilder.thread` or
    :attr:`RankBuilder.unordered`. All calls return the new node, for ``after=`` of later calls.
    A node waits for the one before it in its lane, for those in ``after``, for the node that
    wrote each of its inputs, and for all that used a tensor that it overwrites.

    Sizes are bytes or texts such as ``"1 GiB"``; times are ns or texts such as ``"1.5 ms"``.
    An invalid value raises UsageError, which states the line of the call.
    """

    def __init__(
        self, program: RankProgram, place: Place, groups: Mapping[str, Group], world_size: int,
        claim: Callable[[RankProgram], None],
    ) -> None:  # fmt: skip
        self._program = program
        self._place = place
        self._groups = groups
        self._world_size = world_size
        self._claim = claim

    def compute(
        self,
        name: str,
        *,
        flops: float | None = None,
        bytes: int | str | None = None,  # noqa: A002
        duration: int | str | None = None,
        after: After = (),
        inputs: Tensors = (),
        outputs: Tensors = (),
    ) -> BuiltNode:
        """Compute: for a duration, or so many operations on so many bytes of memory.

        Parameters
        ----------
        name
            Name of the node.
        flops
            Floating point operations; 0 if only ``bytes`` is given.
        bytes
            Bytes of memory read and written; by default those of ``inputs`` and ``outputs``.
        duration
            Its time. Without it, a simulation prices it by ``flops`` and ``bytes``, and by the
            attributes that :mod:`nadi.systems.prices` knows.
        after
            A node or several, which it waits for.
        inputs, outputs
            A tensor or several, which it reads and writes.

        Raises
        ------
        UsageError
            If a value is invalid, or it states neither a duration nor what there is to do.
        """
        taken, given = self._tensors(inputs, outputs)
        moved = size(bytes, "bytes") if bytes is not None else total_bytes((*taken, *given)) or -1
        time = -1 if duration is None else nanoseconds(duration, "duration")
        work = -1 if flops is None else number(flops, "flops")
        if time < 0 and moved < 0:
            met = "has neither a duration nor any work" if work < 0 else "states flops, not bytes"
            raise refusal(
                f"compute {checked_name(name, 'name')!r} {met}, so nothing says how long it takes",
                "give duration=, or flops= and bytes= (or inputs= and outputs=)",
            )
        if work < 0 and moved >= 0 and time < 0:
            work = 0
        columns = {"duration": time, "flops": work, "bytes": moved}
        return self._add(name, "COMP", columns, after, (taken, given))

    def load(
        self, name: str, bytes: int | str | None = None, *, after: After = (),  # noqa: A002
        inputs: Tensors = (), outputs: Tensors = (), tier: str = "",
    ) -> BuiltNode:  # fmt: skip
        """Load from remote memory; by default as many bytes as ``outputs`` have.

        ``tier`` names a memory tier of the system (docs/memory-tiers.md).
        """
        taken, given = self._tensors(inputs, outputs)
        columns = {"bytes": _of_tensors(bytes, given, "load", "outputs"), "tier": tier}
        return self._add(name, "MEM_LOAD", columns, after, (taken, given))

    def store(
        self, name: str, bytes: int | str | None = None, *, after: After = (),  # noqa: A002
        inputs: Tensors = (), outputs: Tensors = (), tier: str = "",
    ) -> BuiltNode:  # fmt: skip
        """Store to remote memory; by default as many bytes as ``inputs`` have.

        ``tier`` names a memory tier of the system (docs/memory-tiers.md).
        """
        taken, given = self._tensors(inputs, outputs)
        columns = {"bytes": _of_tensors(bytes, taken, "store", "inputs"), "tier": tier}
        return self._add(name, "MEM_STORE", columns, after, (taken, given))

    def send(
        self, to: int, bytes: int | str | None = None, *, tag: int | None = None,  # noqa: A002
        name: str = "send", after: After = (), inputs: Tensors = (),
    ) -> BuiltNode:  # fmt: skip
        """Send bytes to a rank, by default those of ``inputs``; it does not wait for the receive.

        The k-th send without ``tag`` from one rank to another matches the k-th receive without
        ``tag``. Those with the same tag match in their order, too.

        Raises
        ------
        UsageError
            If a value is invalid. When the job is finished: if it has no receive.
        """
        taken, given = self._tensors(inputs, ())
        size_ = _of_tensors(bytes, taken, "send", "inputs", least=1)
        ends = "src", "dst", self._peer(to, "to")
        columns = self._message("send", size_, ends, self._tag(tag, "send", to))
        return self._add(name, "COMM_SEND", columns, after, (taken, given))

    def recv(
        self, source: int, bytes: int | str | None = None, *, tag: int | None = None,  # noqa: A002
        name: str = "recv", after: After = (), outputs: Tensors = (),
    ) -> BuiltNode:  # fmt: skip
        """Receive bytes from a rank, by default those of ``outputs``; matched as for ``send``."""
        taken, given = self._tensors((), outputs)
        size_ = _of_tensors(bytes, given, "recv", "outputs", least=1)
        ends = "dst", "src", self._peer(source, "source")
        columns = self._message("recv", size_, ends, self._tag(tag, "recv", source))
        return self._add(name, "COMM_RECV", columns, after, (taken, given))

    def collective(
        self,
        type: str,  # noqa: A002
        bytes: int | str | None = None,  # noqa: A002
        *,
        group: Group | str | None = None,
        root: int | None = None,
        name: str = "",
        after: After = (),
        inputs: Tensors = (),
        outputs: Tensors = (),
    ) -> BuiltNode:
        """Take part in a collective. Its k-th one in a group is the same on all members.

        Parameters
        ----------
        type
            One of ``all_reduce``, ``reduce``, ``all_gather``, ``gather``, ``scatter``,
            ``broadcast``, ``all_to_all``, ``reduce_scatter`` and ``barrier``.
        bytes
            What each member contributes; of a broadcast and a scatter, what the root has. By
            default the bytes of ``inputs``. None for a barrier.
        group
            A group of :meth:`JobBuilder.group`, or its name; by default all ranks.
        root
            The rank that a broadcast or scatter begins at, or a reduce or gather ends at; by
            default the first member.
        name
            Name of the node; by default the type.
        after, inputs, outputs
            As for :meth:`compute`.

        Raises
        ------
        UsageError
            If a value is invalid. When the job is finished: if a member of the group does not
            take part, or in another collective.
        """
        taken, given = self._tensors(inputs, outputs)
        if type not in COLLECTIVES:
            raise refusal(
                f"unknown type of collective {type!r}", f"one of {', '.join(COLLECTIVES)}"
            )
        chosen = self._group(group)
        columns: dict[str, Any] = {"comm_type": type, "group": chosen.name}
        if type != "barrier":
            columns["comm_bytes"] = _of_tensors(bytes, taken, type, "inputs", least=1)
        elif bytes is None:
            columns["comm_bytes"] = 0
        else:
            raise refusal("a barrier has no bytes", "leave out bytes")
        columns |= self._root(type, root, chosen)
        return self._add(name or type, "COMM_COLL", columns, after, (taken, given))

    def metadata(self, name: str, *, after: After = ()) -> BuiltNode:
        """Add a node that does nothing and takes no time, for attributes; it is in no lane."""
        return self._add(name, "METADATA", {}, after, ((), ()))

    def _add(
        self, name: str, kind: str, columns: Mapping[str, Any], after: After,
        operands: tuple[tuple[Tensor, ...], tuple[Tensor, ...]],
    ) -> BuiltNode:  # fmt: skip
        self._program.refuse_if_finished()
        self._claim(self._program)
        on_host = self._place.thread >= 0
        category = "operator" if on_host else "kernel"
        if kind == "METADATA":
            category = "metadata"
        elif kind in ("MEM_LOAD", "MEM_STORE") and not on_host:
            category = "memcpy"
        place = Place() if kind == "METADATA" else self._place
        operation = Operation(
            checked_name(name, "name"), kind, category, *place,
            is_cpu=on_host and kind != "METADATA", **columns,
        )  # fmt: skip
        return self._program.add(operation, after, *operands)

    def _tensors(
        self, inputs: Tensors, outputs: Tensors
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        checked = self._program.checked
        return checked(inputs, "inputs"), checked(outputs, "outputs")

    def _message(
        self, comm_type: str, size: int, ends: tuple[str, str, int], tag: int
    ) -> dict[str, Any]:
        """Return the columns of a message; ``ends`` are its own column, the other, and who that is.

        A program of several ranks has no number of its own.
        """
        own, other, peer = ends
        columns = {"comm_type": comm_type, "comm_bytes": size, other: peer, "tag": tag}
        ranks = self._program.ranks
        return columns | ({own: ranks[0]} if len(ranks) == 1 else {})

    def _peer(self, rank: object, what: str) -> int:
        peer = whole(rank, what)
        if peer >= self._world_size:
            raise refusal(
                f"{what} is {peer}, but the job has {_ranks(self._world_size)}",
                "name another rank, or make the job larger",
            )
        if peer in self._program.ranks:
            raise refusal(f"rank {peer} cannot exchange messages with itself", "name another rank")
        return peer

    def _tag(self, tag: int | None, direction: str, peer: int) -> int:
        if tag is None:
            return self._program.no_tag(direction, peer)
        return whole(tag, "tag", _LARGEST_TAG)

    def _group(self, group: Group | str | None) -> Group:
        if group is None:
            return Group(WORLD, ())
        name = group.name if isinstance(group, Group) else group
        if not isinstance(name, str) or name not in self._groups:
            known = list(self._groups)
            told = ", ".join(known[:_MANY]) + ("" if len(known) <= _MANY else ", ...")
            remedy = f"known are {told}; " if known else ""
            raise refusal(f"unknown group {name!r}", f'{remedy}make it: job.group("...", [0, 1])')
        found = self._groups[name]
        for rank in self._program.ranks:
            if rank not in found.ranks:
                raise refusal(
                    f"rank {rank} is not in group {name!r}", "use a group of this rank, or add it"
                )
        return found

    def _root(self, comm_type: str, root: int | None, group: Group) -> dict[str, int]:
        column = COLLECTIVES[comm_type].root
        if not column:
            if root is not None:
                raise refusal(f"{comm_type} has no root", "leave out root")
            return {}
        members: Sequence[int] = group.ranks or range(self._world_size)
        place = members[0] if root is None else whole(root, "root")
        if place not in members:
            raise refusal(f"root is {place}, which is not in the group", "name a rank of the group")
        return {column: place}


class RankBuilder(Lane):
    """A rank of a job, or several that do the same; its own calls use stream 0."""

    @property
    def number(self) -> int:
        """The number of the rank.

        Raises
        ------
        UsageError
            If it is the program of several ranks.
        """
        if len(self._program.ranks) > 1:
            raise refusal(
                f"this is the program of {_ranks(len(self._program.ranks))}, which have no number "
                "in common", "write a program for each: for rank in job.ranks",
            )  # fmt: skip
        return self._program.ranks[0]

    def stream(self, number: int) -> Lane:
        """Return a stream of its device, which runs beside the others."""
        return self._lane(Place(stream=whole(number, "the stream", _LARGEST_PLACE)))

    def thread(self, number: int) -> Lane:
        """Return a thread of its host, which runs beside the others."""
        return self._lane(Place(thread=whole(number, "the thread", _LARGEST_PLACE)))

    @property
    def unordered(self) -> Lane:
        """The device without streams: a node waits only for what it names."""
        return self._lane(Place())

    def tensor(
        self,
        shape: int | Sequence[int] = (),
        dtype: str = "float32",
        *,
        bytes: int | str | None = None,  # noqa: A002
        device: str = "cuda:0",
    ) -> Tensor:
        """Make a tensor, which nodes of this rank can take as input and give as output.

        Parameters
        ----------
        shape, dtype
            Its size in each dimension, and PyTorch's name of its type, such as ``bfloat16``.
        bytes
            Its size instead, if shape and type do not matter.
        device
            Where it is: ``cuda:0``, or ``cpu``.

        Raises
        ------
        UsageError
            If a value is invalid.
        """
        program = self._program
        place = checked_name(device, "device")
        return program.own(new_tensor(program.num_tensors + 1, shape, dtype, bytes, place))

    def loop(self, name: str, count: int) -> Iterator[int]:
        """Count from 0; the names of nodes made meanwhile begin with ``name[k].``."""
        before, program = self._program.prefix, self._program
        checked = checked_name(name, "name")
        rounds = whole(count, "count")
        try:
            for k in range(rounds):
                program.prefix = f"{before}{checked}[{k}]."
                yield k
        finally:
            program.prefix = before

    def _lane(self, place: Place) -> Lane:
        return Lane(self._program, place, self._groups, self._world_size, self._claim)


def _ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def _of_tensors(
    given: int | str | None, tensors: Sequence[Tensor], what: str, where: str, least: int = 0
) -> int:
    """Return the bytes given, or else those of tensors."""
    if given is not None:
        return size(given, "bytes", least)
    if not tensors:
        raise refusal(f"{what} states no size", f"give bytes=, or its tensors as {where}=")
    return size(total_bytes(tensors), f"the size of {where}", least)
