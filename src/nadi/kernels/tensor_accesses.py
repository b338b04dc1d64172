"""Which operation reads what another wrote, from the byte ranges of memory that each touches.

Memory is divided into storages. For each, the ranges touched so far are kept as a list of
segments, of which every byte has the same last writer and the same readers since. An access
divides the segments that it begins or ends in; a write makes one segment of all that it covers.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import called, inner, kernel

# what an operation does to a tensor, by its schema
READ, WRITE = 1, 2
FRESH = 4  # a result: new memory, unless it lies in the memory of an argument
ALIAS = 8  # a result that is said to lie in the memory of an argument
SCALAR = 16  # an argument that may be a number of the program, made a tensor for the call
# what the tensor is
WORD = 32  # its elements have 8 bytes, as a number of the program has
RAW, WAR, WAW = 0, 1, 2
_NONE = -1


class Uses(NamedTuple):
    """Uses of tensors by operations, those of operation i in ``first[i]:first[i + 1]``."""

    first: np.ndarray
    flags: np.ndarray  # bits, see above
    tensor: np.ndarray  # by the recorded id
    storage: np.ndarray
    begin: np.ndarray  # bytes from the start of the storage
    end: np.ndarray


class Histories(NamedTuple):
    """Segments of the storages, and the readers of each segment since it was written.

    The list of storage s begins at entry s, which is no segment itself. Readers are lists
    that share their tails, so that a segment can be divided without copying.
    """

    begin: np.ndarray
    end: np.ndarray
    next: np.ndarray
    writer: np.ndarray
    readers: np.ndarray  # the last reader, as a place in the two arrays below
    reader: np.ndarray
    reader_before: np.ndarray
    reader_seen: np.ndarray  # by which write
    hint: np.ndarray  # by storage: the segment before what was last touched
    sizes: np.ndarray  # segments used, first unused one given back, readers used


class AccessEdges(NamedTuple):
    """Dependencies found; ``seen`` is by kind and source: for which destination last."""

    src: np.ndarray
    dst: np.ndarray
    kind: np.ndarray
    seen: np.ndarray
    sizes: np.ndarray  # found, and left out because the source comes after the destination


@kernel
def byte_ranges(
    numbers: np.ndarray, first_dim: np.ndarray, num_dims: np.ndarray, num_strides: np.ndarray,
    dims: np.ndarray, begin: np.ndarray, end: np.ndarray,
) -> None:  # fmt: skip
    """Find the smallest range of bytes of its storage that each tensor lies in. O(dimensions).

    - ``numbers``, ``first_dim``, ``num_dims``, ``num_strides``, ``dims``: As in
      :class:`nadi.trace.operand_kernels.Tensors`. Without strides a tensor is taken to be
      contiguous.
    - ``begin``, ``end``: int64, shape (tensors,), filled; equal for a tensor without memory.
    """
    for i in range(begin.size):
        offset, elements, size = numbers[i, 2], numbers[i, 3], numbers[i, 4]
        span = elements
        if num_dims[i] > 0 and num_strides[i] == num_dims[i] and elements > 0:
            span = 1
            for d in range(first_dim[i], first_dim[i] + num_dims[i]):
                span += (dims[d] - 1) * dims[d + num_dims[i]]
        begin[i] = offset * size
        end[i] = begin[i] + span * size
        if numbers[i, 1] == 0 or begin[i] < 0 or end[i] < begin[i]:
            begin[i] = end[i] = 0  # no memory, or numbers that cannot be


@inner
def _lies_in(low: int, high: int, parent: np.ndarray) -> bool:
    """Tell whether an operation is another one or lies in it; parents come before."""
    while high > low:
        high = parent[high]
    return high == low


@inner
def _settle_results(uses: Uses, op: int, argument_of: np.ndarray, view_of: np.ndarray) -> None:
    """Find the results that are views, and the arguments that are read for no more than that."""
    makes_memory = False
    for use in range(uses.first[op], uses.first[op + 1]):
        if not uses.flags[use] & FRESH:
            argument_of[uses.storage[use]] = op
    for use in range(uses.first[op], uses.first[op + 1]):
        flags, storage = uses.flags[use], uses.storage[use]
        if flags & FRESH and argument_of[storage] == op:
            uses.flags[use] &= ~(FRESH | WRITE)
            if not flags & ALIAS:
                view_of[storage] = op
        elif flags & FRESH:
            makes_memory = True
    if makes_memory:
        return  # from data that it reads
    for use in range(uses.first[op], uses.first[op + 1]):
        if view_of[uses.storage[use]] == op and not uses.flags[use] & WRITE:
            uses.flags[use] &= ~READ


@kernel
def settle_uses(uses: Uses, num_tensors: int, num_storages: int) -> None:
    """Settle by the memory that tensors lie in what schemas leave open.

    A result in the storage of an argument is a view; any other is new memory. An argument
    of an operation that gives nothing but views of it is not read. A number that a
    program gives where a tensor is expected becomes a tensor unseen, often in a storage
    whose id was another's before: it is known by being a single word on its own, under an
    id that this memory has not had, given for an argument that may be a number.

    - ``uses``: Of operations in the order in which they began. ``flags`` int64 is changed: READ,
      WRITE and FRESH stay, where they hold.
    - ``num_tensors``, ``num_storages``: Both are counted from 0. O(uses).
    """
    argument_of = np.full(num_storages, _NONE, dtype=np.int64)
    view_of = np.full(num_storages, _NONE, dtype=np.int64)
    # the use that made the memory of a storage, and by tensor that of the memory it was met in
    made = np.full(num_storages, _NONE, dtype=np.int64)
    met = np.full(num_tensors, -2, dtype=np.int64)  # nowhere; -1 is memory made unseen
    number = np.full(num_tensors, _NONE, dtype=np.int64)  # the storage of a number
    for op in range(uses.first.size - 1):
        _settle_results(uses, op, argument_of, view_of)
        for use in range(uses.first[op], uses.first[op + 1]):
            flags, tensor, storage = uses.flags[use], uses.tensor[use], uses.storage[use]
            maker = made[storage]
            if flags & FRESH:
                made[storage] = maker = use
            known = met[tensor] == maker
            if not known and flags & SCALAR and flags & WORD and maker >= 0:
                # unless it is a part of what was made
                part = uses.flags[maker] & WORD and uses.end[maker] > uses.end[use]
                if not part and uses.begin[use] == 0 and uses.end[use] == 8:
                    number[tensor] = storage
            if flags & (READ | WRITE | FRESH) == READ and number[tensor] == storage:
                uses.flags[use] &= ~READ
            else:
                met[tensor] = maker
                number[tensor] = _NONE
    for use in range(uses.flags.size):
        uses.flags[use] &= READ | WRITE | FRESH


@kernel
def find_own_accesses(
    uses: Uses, parent: np.ndarray, num_storages: int, last_inside: np.ndarray
) -> None:
    """Leave to each operation the accesses that the operations in it do not make.

    An operator that calls others may do nothing itself, or some of the work. It works
    itself if it reads or writes a storage that nothing in it reads or writes; then it
    writes all of its results.

    - ``uses``: As :func:`settle_uses` left them. ``flags`` int64 is changed: READ and WRITE of the
      operation's own accesses stay, and FRESH.
    - ``parent``: int64, shape (ops,): an earlier operation, or -1.
    - ``num_storages``: Storages are counted from 0.
    - ``last_inside``: int64, shape (ops,), filled: the last operation in each operation that has
      accesses of its own or makes memory, or -1. O(uses times depth of calls).
    """
    num_ops = parent.size
    next_read = np.full(num_storages, num_ops, dtype=np.int64)
    next_write = np.full(num_storages, num_ops, dtype=np.int64)
    last_inside[:] = _NONE
    for op in range(num_ops - 1, -1, -1):
        works = False
        for use in range(uses.first[op], uses.first[op + 1]):
            storage = uses.storage[use]
            if uses.flags[use] & READ:
                inside = next_read[storage]
                if inside < num_ops and _lies_in(op, inside, parent):
                    uses.flags[use] &= ~READ
                else:
                    works = True
            if uses.flags[use] & WRITE:
                inside = next_write[storage]
                works |= inside == num_ops or not _lies_in(op, inside, parent)
        matters = works
        for use in range(uses.first[op], uses.first[op + 1]):
            if not works:
                uses.flags[use] &= FRESH
            matters |= uses.flags[use] != 0
            if uses.flags[use] & READ:
                next_read[uses.storage[use]] = op
            if uses.flags[use] & WRITE:
                next_write[uses.storage[use]] = op
        last = last_inside[op] if last_inside[op] >= 0 or not matters else op
        if parent[op] >= 0:
            last_inside[parent[op]] = max(last_inside[parent[op]], last)


@inner
def _new_segment(
    found: Histories, begin: int, end: int, following: int, writer: int, readers: int
) -> int:
    segment: int = found.sizes[1]
    if segment >= 0:
        found.sizes[1] = found.next[segment]
    else:
        segment = found.sizes[0]
        found.sizes[0] += 1
    found.begin[segment], found.end[segment] = begin, end
    found.next[segment] = following
    found.writer[segment], found.readers[segment] = writer, readers
    return segment


@inner
def _give_back(found: Histories, segment: int, end: int) -> None:
    """Give back the segments from one on to another, which stays."""
    while segment != end:
        following = found.next[segment]
        found.next[segment] = found.sizes[1]
        found.sizes[1] = segment
        segment = following


@inner
def _divide(found: Histories, segment: int, at: int) -> None:
    found.next[segment] = _new_segment(
        found, at, found.end[segment], found.next[segment],
        found.writer[segment], found.readers[segment],
    )  # fmt: skip
    found.end[segment] = at


@inner
def _tile(found: Histories, storage: int, begin: int, end: int) -> int:
    """Let segments cover a range and nothing else; gives the one before the first of them."""
    before = found.hint[storage]
    if before != storage and found.end[before] > begin:
        before = storage
    while found.next[before] >= 0 and found.end[found.next[before]] <= begin:
        before = found.next[before]
    following = found.next[before]
    if following >= 0 and found.begin[following] < begin:
        _divide(found, following, begin)
        before = following
    last = before
    at = begin
    while at < end:
        following = found.next[last]
        if following < 0 or found.begin[following] > at:
            stop = end if following < 0 else min(end, found.begin[following])
            found.next[last] = _new_segment(found, at, stop, following, _NONE, _NONE)
        elif found.end[following] > end:
            _divide(found, following, end)
        last = found.next[last]
        at = found.end[last]
    found.hint[storage] = before
    return before


@inner
def _add(edges: AccessEdges, src: int, dst: int, kind: int, parent: np.ndarray) -> None:
    if src < 0 or edges.seen[kind, src] == dst:
        return
    edges.seen[kind, src] = dst
    if _lies_in(min(src, dst), max(src, dst), parent):
        return  # the call orders them
    if src > dst:
        edges.sizes[1] += 1
        return
    at = edges.sizes[0]
    edges.sizes[0] += 1
    if at < edges.src.size:
        edges.src[at], edges.dst[at], edges.kind[at] = src, dst, kind


@inner
def _read(
    found: Histories, edges: AccessEdges, uses: Uses, use: int, op: int, parent: np.ndarray
) -> None:
    end = uses.end[use]
    segment = found.next[_tile(found, uses.storage[use], uses.begin[use], end)]
    while segment >= 0 and found.begin[segment] < end:
        _add(edges, found.writer[segment], op, RAW, parent)
        before = found.readers[segment]
        if before < 0 or found.reader[before] != op:
            at = found.sizes[2]
            found.sizes[2] += 1
            if at < found.reader.size:
                found.reader[at], found.reader_before[at] = op, before
                found.reader_seen[at] = _NONE
                found.readers[segment] = at
        segment = found.next[segment]


@inner
def _write(
    found: Histories, edges: AccessEdges, uses: Uses, use: int, op: int, parent: np.ndarray
) -> None:
    """Let a write follow the readers of what it covers, or the writer where nobody read."""
    end = uses.end[use]
    before = _tile(found, uses.storage[use], uses.begin[use], end)
    segment = found.next[before]
    while segment >= 0 and found.begin[segment] < end:
        at = found.readers[segment]
        if at < 0:
            _add(edges, found.writer[segment], op, WAW, parent)
        while at >= 0 and found.reader_seen[at] != use:
            found.reader_seen[at] = use  # lists that share it need not be gone through again
            _add(edges, found.reader[at], op, WAR, parent)
            at = found.reader_before[at]
        segment = found.next[segment]
    first = found.next[before]
    _give_back(found, found.next[first], segment)
    found.next[first], found.end[first] = segment, end
    found.writer[first], found.readers[first] = op, _NONE


@called
def _write_all(
    found: Histories, edges: AccessEdges, uses: Uses, op: int, parent: np.ndarray
) -> None:
    for use in range(uses.first[op], uses.first[op + 1]):
        if uses.flags[use] & WRITE:
            _write(found, edges, uses, use, op, parent)


@kernel
def find_edges(
    uses: Uses, parent: np.ndarray, last_inside: np.ndarray, found: Histories, edges: AccessEdges
) -> bool:
    """Find which operation must follow which.

    A read follows the last writers of its range. A write follows the readers since the
    last write, or that write where nobody has read; so what follows from two others is
    left out. An operation that works itself and calls others reads before they do and
    writes after they did. New memory has no history, whatever storage's name it got.

    - ``uses``, ``parent``, ``last_inside``: As :func:`find_own_accesses` left them.
    - ``found``: Space for 2 segments a use after one for each storage, all with ``next`` -1;
      ``hint`` is the number of each storage; ``sizes`` is (storages, -1, 0).
    - ``edges``: Filled; ``seen`` -1 and ``sizes`` 0.
    - Returns: Whether there was space enough for readers and edges; ``sizes`` tell how much is
      needed at least. O(uses + edges), as long as accesses of a storage come mostly in order of
      their places.
    """
    num_ops = parent.size
    waiting = np.full(num_ops, _NONE, dtype=np.int64)
    waiting_before = np.full(num_ops, _NONE, dtype=np.int64)
    for op in range(num_ops):
        first, end = uses.first[op], uses.first[op + 1]
        works = False
        for use in range(first, end):
            if uses.flags[use] & FRESH:
                storage = uses.storage[use]
                _give_back(found, found.next[storage], _NONE)
                found.next[storage], found.hint[storage] = _NONE, storage
        for use in range(first, end):
            works |= uses.flags[use] & WRITE != 0
            if uses.flags[use] & READ:
                _read(found, edges, uses, use, op, parent)
        last = last_inside[op]
        if works and last >= 0:
            waiting_before[op] = waiting[last]
            waiting[last] = op
        elif works:
            _write_all(found, edges, uses, op, parent)
        # what this is the last part of writes now, the innermost first
        around = waiting[op]
        while around >= 0:
            _write_all(found, edges, uses, around, parent)
            around = waiting_before[around]
        if found.sizes[2] > found.reader.size or edges.sizes[0] > edges.src.size:
            return False
    return True
