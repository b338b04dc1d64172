"""Slow oracles of dependencies by tensors: byte by byte, and with sets for what lies in what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Edge = tuple[int, int, str]


@dataclass(frozen=True)
class Access:
    """Bytes ``begin`` to ``end`` of a storage."""

    storage: int
    begin: int
    end: int

    def bytes(self) -> Iterator[tuple[int, int]]:
        return ((self.storage, byte) for byte in range(self.begin, self.end))


@dataclass(frozen=True)
class Operation:
    """What one operation does; ``fresh`` are storages that get new memory in it."""

    parent: int = -1
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    fresh: tuple[int, ...] = ()


def own_accesses(operations: Sequence[Operation]) -> list[Operation]:
    """Leave to each operation what those in it do not do."""
    own = list(operations)
    inside = descendants(operations)
    for op in reversed(range(len(own))):
        read = {access.storage for inner in inside[op] for access in own[inner].reads}
        written = {access.storage for inner in inside[op] for access in own[inner].writes}
        reads = tuple(access for access in own[op].reads if access.storage not in read)
        works = reads or any(access.storage not in written for access in own[op].writes)
        own[op] = Operation(
            own[op].parent, reads, own[op].writes if works else (), own[op].fresh
        )  # fmt: skip
    return own


def descendants(operations: Sequence[Operation]) -> list[set[int]]:
    inside: list[set[int]] = [set() for _ in operations]
    for op in reversed(range(len(operations))):
        if (parent := operations[op].parent) >= 0:
            inside[parent] |= {op} | inside[op]
    return inside


def events(own: Sequence[Operation]) -> Iterator[tuple[int, str]]:
    """Give (operation, "begin" or "end") in order: an end after all that happens inside."""
    inside = descendants(own)
    keys = []
    for op in range(len(own)):
        happening = [
            inner
            for inner in inside[op]
            if own[inner].reads or own[inner].writes or own[inner].fresh
        ]
        keys.append(((op, 0, 0), op, "begin"))
        keys.append(((max([op, *happening]), 1, -op), op, "end"))
    return ((op, what) for _, op, what in sorted(keys))


@dataclass
class _Byte:
    writer: int = -1
    readers: set[int] = field(default_factory=set)


def edges(own: Sequence[Operation]) -> set[Edge]:
    """Find the dependencies of operations that are left their own accesses."""
    memory: dict[tuple[int, int], _Byte] = {}
    found: set[Edge] = set()
    for op, what in events(own):
        if what == "begin":
            memory = {key: byte for key, byte in memory.items() if key[0] not in own[op].fresh}
            for key in _all_bytes(own[op].reads):
                byte = memory.setdefault(key, _Byte())
                found.add((byte.writer, op, "raw"))
                byte.readers.add(op)
        else:
            for key in _all_bytes(own[op].writes):
                byte = memory.get(key, _Byte())
                found |= {(reader, op, "war") for reader in byte.readers}
                if not byte.readers:
                    found.add((byte.writer, op, "waw"))
                memory[key] = _Byte(writer=op)
    inside = descendants(own)
    return {
        (src, dst, kind) for src, dst, kind in found
        if 0 <= src < dst and dst not in inside[src]
    }  # fmt: skip


def _all_bytes(accesses: Iterable[Access]) -> Iterator[tuple[int, int]]:
    return (key for access in accesses for key in access.bytes())
