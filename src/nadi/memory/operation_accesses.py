"""Which operations of a simulated trace read and write which bytes of which storages.

A generated trace, and one of Chakra's, states for each node what it is given and what it gives. In
a recording operators have the tensors, and what is simulated are pieces of threads and kernels: the
kernels that an operator launches use its tensors, or the pieces of its thread without a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from nadi.memory.table_lookups import recorded_lookups, stated_lookups
from nadi.recordings.dependencies.tensor_dependencies import tensor_accesses
from nadi.simulation.accounts.memory_accounts import StorageUses, has_operands, storage_uses
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.operands import TensorUses, tensor_uses
from nadi.trace.rows import nearest
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace

if TYPE_CHECKING:
    from nadi.simulation.workload.simulator_nodes import PlayedRank

_HOST = "cpu"
_WORD = 8  # bytes of an index
_OF_TRAINING = ("backward", "optimizer", "recompute")


class Accesses(NamedTuple):
    """What operations read and write; arrays of shape (accesses,)."""

    # first, last: int64: the nodes of the simulated trace before which the data have to be there,
    # and after which they are written; the same but for operators of a recording
    first: Ints
    last: Ints
    row: Ints  # int64: the operation, a row of the trace that states operands
    storage: Ints  # int64: as ``TensorUses`` numbers them
    # begin, end: int64: the bytes of the storage
    begin: Ints
    end: Ints
    # reads, writes: bool
    reads: Bools
    writes: Bools
    width: Ints  # int64: bytes of a row, where rows of a table are looked up; else 0
    receives: Bools  # bool: whether a message brings what is written

    def at(self, chosen: Ints | Bools) -> Accesses:
        """Return some of them."""
        columns: tuple[Any, ...] = tuple(column[chosen] for column in self)
        return Accesses(*columns)


class TensorsOfTrace(NamedTuple):
    """The tensors of a trace."""

    stated: Trace  # the trace that states operands: the simulated one, or what was recorded of it
    uses: StorageUses  # each node's uses of each storage, for the lives of storages
    # those of the memory that is placed: of devices, or of the host where there is no other
    accesses: Accesses
    found: TensorUses  # all tensors


def tensors_of_trace(trace: Trace, played: PlayedRank | None = None) -> TensorsOfTrace | None:
    """Read the tensors of a simulated trace; None if it has none.

    - ``trace``: As it is simulated.
    - ``played``: Of a recording, where its nodes come from.
    - Returns: O(operands log operands).
    """
    stated = trace if played is None else played.recorded
    if not has_operands(stated):
        return None
    columns = stated.operand_columns
    found = tensor_uses(stated.attributes) if columns is None else columns.uses()
    uses = storage_uses(stated, found)
    if uses is None:
        return None
    accesses = _stated(trace, found) if played is None else _recorded(trace, played, found)
    uses = _with_updates(uses, accesses)
    return TensorsOfTrace(stated, uses, accesses.at(_are_placed(found, uses, accesses)), found)


def _with_updates(uses: StorageUses, accesses: Accesses) -> StorageUses:
    """Return uses with those of backwards that update what another operation was given."""
    rows = int(max(uses.row.max(initial=0), accesses.row.max(initial=0))) + 1
    known, wanted = uses.storage * rows + uses.row, accesses.storage * rows + accesses.row
    missing = np.flatnonzero(~np.isin(wanted, known) & np.isin(accesses.storage, uses.storage))
    if not missing.size:
        return uses
    storage = accesses.storage[missing]
    device = np.zeros(int(uses.storage.max()) + 1, dtype=np.int64)
    device[uses.storage] = uses.device
    added = (accesses.row[missing], storage, accesses.end[missing],
             np.zeros(missing.size, dtype=np.bool_), device[storage])  # fmt: skip
    row, storage, size, makes, of_device = (
        np.concatenate(pair) for pair in zip(uses[:5], added, strict=True)
    )
    order = np.lexsort((storage, row))
    return StorageUses(
        row[order], storage[order], size[order], makes[order], of_device[order], uses.devices
    )


def _are_placed(found: TensorUses, uses: StorageUses, accesses: Accesses) -> Bools:
    """Return which accesses are of memory with tiers."""
    names = np.array(uses.devices)
    on_device = names != _HOST
    placed = on_device if on_device.any() else ~on_device
    of_storage = np.zeros(found.num_storages, dtype=np.bool_)
    of_storage[uses.storage] = placed[uses.device]
    chosen: Bools = of_storage[accesses.storage] & (accesses.end > accesses.begin)
    return chosen & (accesses.first >= 0)


def _stated(trace: Trace, found: TensorUses) -> Accesses:
    """Return what nodes say: they read what they are given, and write what they give.

    A collective of fewer bytes than it is given uses a part of each tensor. So does a computation
    that changes tensors in place and states fewer bytes than they have, such as a KV cache; and one
    that looks up rows of a table with more bytes than it states.
    """
    tensor = found.tensor
    once = (
        pl.LazyFrame({
            "node": found.node, "storage": found.storage[tensor], "begin": found.begin[tensor],
            "end": found.end[tensor], "is_output": found.is_output,
        })
        .group_by("node", "storage", "begin", "end", maintain_order=True)
        .agg(reads=(~pl.col("is_output")).any(), writes=pl.col("is_output").any())
        .collect()
    )  # fmt: skip
    node, begin, end = (once[name].to_numpy() for name in ("node", "begin", "end"))
    reads = once["reads"].to_numpy()
    given = np.zeros(trace.nodes.height, dtype=np.int64)
    np.add.at(given, node[reads], (end - begin)[reads])
    is_collective = (trace.nodes["kind"] == "COMM_COLL").to_numpy()
    size = trace.column("comm_bytes")
    in_part = is_collective & (size >= 0) & (given > size)
    share = np.where(in_part, size / np.maximum(given, 1), 1.0)[node]
    end = np.where(reads, begin + np.ceil((end - begin) * share).astype(np.int64), end)
    made = np.zeros(trace.nodes.height, dtype=np.int64)
    np.add.at(made, node[~reads], (end - begin)[~reads])
    end = np.where(reads, np.minimum(end, begin + _looked_up(trace, node, end - begin, made)), end)
    storage, is_work = once["storage"].to_numpy(), (trace.nodes["kind"] == "COMP").to_numpy()
    word = np.zeros(found.num_storages, dtype=np.bool_)
    word[found.storage[found.is_word]] = True
    words = np.bincount(node, (end - begin) // _WORD * (word[storage] & reads & is_work[node]))
    ends = np.zeros(found.num_storages, dtype=np.int64)
    np.maximum.at(ends, found.storage, found.end)
    is_part = (begin > 0) & (end == ends[storage]) & ~word[storage]
    width = stated_lookups(words.astype(np.int64), node, end - begin, is_part=is_part)
    given_all = Accesses(
        node, node, node, storage, begin, end, reads, once["writes"].to_numpy(), width,
        _receives(trace)[node],
    )  # fmt: skip
    phases = trace.nodes["phase"]
    is_inference = (phases == "forward").any() and not phases.is_in(_OF_TRAINING).any()
    return (_parts_of_caches if is_inference else _parts_in_place)(trace, given_all)


def _looked_up(trace: Trace, node: Ints, length: Ints, made: Ints) -> Ints:
    """Return how many bytes each use of a tensor reads at most, by what its computation states.

    A tensor with more bytes than all that its computation moves is a table of rows: it reads what
    it does not write.

    - ``made``: int64, shape (nodes,): bytes that each computation gives.
    """
    stated = trace.column("bytes")
    knows = (trace.nodes["kind"] == "COMP").to_numpy() & (stated >= 0)
    rows = np.where(made < stated, stated - made, stated)[node]
    return np.where(knows[node] & (length > stated[node]), rows, length)


def _parts_of_caches(trace: Trace, accesses: Accesses) -> Accesses:
    """Limit what computations of inference read of tensors that they change in place.

    What an operation states and moves otherwise does not, it reads of them. It writes the part that
    it gives; where that is all of them, at most as much as it is given of what the step made.
    """
    size, row, storage = trace.nodes.height, accesses.row, accesses.storage
    length = accesses.end - accesses.begin
    times = accesses.reads + accesses.writes.astype(np.int64)
    _, use = np.unique(row * (int(storage.max(initial=0)) + 1) + storage, return_inverse=True)
    both = (np.bincount(use, accesses.reads) > 0) & (np.bincount(use, accesses.writes) > 0)
    in_place = both[use]
    first = np.full(int(storage.max(initial=-1)) + 1, size)
    np.minimum.at(first, storage, row)
    was_there = np.zeros(first.size, dtype=np.bool_)
    was_there[storage[accesses.reads & (row == first[storage])]] = True

    def add_up(values: Ints) -> Floats:
        return np.bincount(row, values, minlength=size).astype(np.float64)

    whole, changed = (add_up(length * in_place * way) for way in (accesses.reads, accesses.writes))
    given = add_up(length * (accesses.reads & ~in_place & ~was_there[storage]))
    stated = trace.column("bytes")
    left = stated - add_up(length * times * ~in_place)
    is_whole = changed >= whole
    limited = (trace.nodes["kind"] == "COMP").to_numpy() & (stated >= 0)
    limited &= left < np.where(is_whole, 1.5, 1.0) * whole
    chosen = in_place & limited[row]
    if not chosen.any():
        return accesses
    some = np.maximum(whole, 1)
    read = np.clip(left / some, 0, 1)[row]
    written = np.where(is_whole, np.clip(given / some, 0, 1), 1.0)[row]
    return _with_shares(accesses, chosen, read, written)


def _parts_in_place(trace: Trace, accesses: Accesses) -> Accesses:
    """Limit what computations read and write of tensors that they change in place.

    Those that state less than half of the bytes of their tensors use a part: they write no more
    than they are given otherwise.
    """
    size, row = trace.nodes.height, accesses.row
    length = accesses.end - accesses.begin
    both = accesses.reads & accesses.writes

    def add_up(values: Ints) -> Ints:
        total = np.zeros(size, dtype=np.int64)
        np.add.at(total, row, values)
        return total

    total = add_up(length * (accesses.reads + accesses.writes.astype(np.int64)))
    in_place = add_up(length * both)
    others, given = total - 2 * in_place, add_up(length * (accesses.reads & ~both))
    stated = trace.column("bytes")
    limited = (trace.nodes["kind"] == "COMP").to_numpy() & (stated >= 0) & (2 * stated < total)
    chosen = both & limited[row]
    if not chosen.any():
        return accesses
    whole = np.maximum(in_place, 1)
    read = np.clip((stated - others) / whole, 0, 1)[row]
    written = np.clip(given / whole, 0, 1)[row]
    return _with_shares(accesses, chosen, read, written)


def _with_shares(accesses: Accesses, chosen: Bools, read: Floats, written: Floats) -> Accesses:
    """Return accesses of which the chosen ones read and write a share of their bytes."""
    length = accesses.end - accesses.begin
    parts = [accesses.at(~chosen)]
    for share, reads in ((read, True), (written, False)):
        end = accesses.begin + np.ceil(length * share).astype(np.int64)
        part = accesses._replace(
            end=end, reads=accesses.reads & reads, writes=accesses.writes & (not reads)
        )
        parts.append(part.at(chosen & (part.reads | part.writes)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Accesses(*columns)


def _recorded(simulated: Trace, played: PlayedRank, found: TensorUses) -> Accesses:
    """Return what operators do, as the kernels that they launch, or the pieces of their thread."""
    trace = played.recorded
    own, width = recorded_lookups(trace, tensor_accesses(trace, found), found)
    first, last = played.first.copy(), played.last.copy()
    kernels = np.flatnonzero(trace.category_mask(*DEVICE_WORK) & (played.first >= 0))
    if kernels.size:
        works = np.zeros(trace.nodes.height, dtype=np.bool_)
        works[own.row] = True
        launch = trace.deps.filter(pl.col("kind") == "launch")
        call = np.full(trace.nodes.height, -1, dtype=np.int64)
        call[launch["dst"].to_numpy()] = launch["src"].to_numpy()
        operator = nearest(call[kernels], trace.column("parent"), works)
        launched = operator >= 0
        rows, node = operator[launched], kernels[launched]
        low = np.full(trace.nodes.height, np.iinfo(np.int64).max)
        high = np.full(trace.nodes.height, -1, dtype=np.int64)
        np.minimum.at(low, rows, played.first[node])
        np.maximum.at(high, rows, played.last[node])
        first[rows], last[rows] = low[rows], high[rows]
    return Accesses(
        first[own.row], last[own.row], own.row, own.storage, own.begin, own.end, own.reads,
        own.writes, width, _receives(simulated)[np.maximum(first[own.row], 0)],
    )  # fmt: skip


def _receives(trace: Trace) -> Bools:
    """Return which nodes wait for a message; bool, shape (nodes,)."""
    return (trace.nodes["kind"] == "COMM_RECV").to_numpy()
