"""Embedding tables: which operations look up rows of them, how many, and what a cache holds.

A recorded operator that looks rows up has a whole table among its inputs, and says by its indices
how many rows it reads. Those rows are taken to lie at the end of the table, wherever they are.
A fused operator of FBGEMM also updates the rows, with the state of its optimizer, in its backward.
Both are only said by the operator of the forward.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.recordings.dependencies.tensor_dependencies import TensorAccesses, texts_of_nodes
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operands import TensorUses
from nadi.trace.trace import Trace

_LOOKUP = r"^(aten|fbgemm)::_?(dense_|split_)?embedding(_bag|_codegen_lookup)?(_\w*)?$"
_GATHER = "aten::index_select"
_NOT = r"backward|renorm"
_FORWARD = re.compile(r"fbgemm::split_embedding_codegen_lookup_(\w+?)_function")
_BACKWARD = re.compile(r"torch::autograd::CppNode<.*SplitLookupFunction_(\w{1,99}?)_Op")
_TABLE = re.compile(r"^(weight|self|(dev|uvm|host)_weights|weights)$")
_STATE = re.compile(r"^(momentum\w*|\w*_sum|\w*counter)_(dev|uvm|host)$")
_WORD, _HALF_WORD = 8, 4  # bytes of an index


def recorded_lookups(
    trace: Trace, own: TensorAccesses, found: TensorUses
) -> tuple[TensorAccesses, Ints]:
    """Let operators of a recording read the rows that they look up, and update them.

    - ``own``: What operators read and write by their schemas.
    - ``found``: The tensors of the trace.
    - Returns TensorAccesses, int64 of shape (accesses,): And the bytes of a row, 0 for what is
      accessed otherwise. O(accesses + lookups).
    """
    none = np.zeros(own.row.size, dtype=np.int64)
    rows = np.flatnonzero(trace.name_mask(_LOOKUP) & ~trace.name_mask(_NOT))
    parent, gathers = trace.column("parent"), np.flatnonzero(trace.name_mask(f"^{_GATHER}$"))
    rows = np.union1d(rows, gathers[np.isin(parent[gathers], rows)])
    names = {row: trace.nodes["name"][row] for row in rows.tolist()}
    schemas = {
        node: texts[code]
        for nodes, codes, texts in texts_of_nodes(trace.attributes, "op_schema")
        for node, code in zip(nodes.tolist(), codes.tolist(), strict=True)
        if node in names
    }
    if not schemas:
        return own, none
    updates = _updates(trace, names)
    width = none
    kept = np.ones(own.row.size, dtype=np.bool_)
    begin, added = own.begin.copy(), []
    size = found.end - found.begin
    for row, schema in schemas.items():
        inputs, given = _operands(schema, row, found)
        tables = [number for name, number in inputs.items() if _TABLE.match(name)]
        tables = [number for number in tables if size[number]]
        count, of_row = _looked_up(inputs, given, size, found, names[row])
        total = int(size[tables].sum()) if tables else 0
        if not count or not of_row or not total:
            continue
        states = [number for name, number in inputs.items() if _STATE.match(name)]
        of_operator = own.row == row
        for number in tables + states:
            share = count * of_row * int(size[number]) // total
            low = max(int(found.end[number]) - share, int(found.begin[number]))
            mine = np.flatnonzero(of_operator & (own.storage == found.storage[number]))
            per_row = max(of_row * int(size[number]) // total, 1)
            width[mine], begin[mine] = per_row, low
            kept[mine] = number in tables
            if row in updates and share:
                added.append((updates[row], found.storage[number], low, found.end[number], per_row))
    return _with_updates(own._replace(begin=begin), width, kept, added)


def _with_updates(
    own: TensorAccesses, width: Ints, kept: np.ndarray, added: Sequence[tuple[int, ...]]
) -> tuple[TensorAccesses, Ints]:
    """Return the accesses that are kept, and those of updates, which read and write rows."""
    more = np.array(added, dtype=np.int64).reshape(-1, 5).T
    flags = np.ones(more.shape[1], dtype=np.bool_)
    columns = [
        np.concatenate([old[kept], new])
        for old, new in zip((*own, width), (*more[:4], flags, flags, more[4]), strict=True)
    ]
    return TensorAccesses(*columns[:-1]), columns[-1]


def _operands(schema: str, row: int, found: TensorUses) -> tuple[dict[str, int], int]:
    """Give the tensors of an operator by the names of its arguments; bytes of its first result."""
    first, end = np.searchsorted(found.node, [row, row + 1])
    arguments = schema.partition("(")[2].rpartition(") ->")[0].split(", ")
    names = [one.partition("=")[0].rpartition(" ")[2] for one in arguments]
    inputs, given = {}, 0
    for use in range(first, end):
        number, place = int(found.tensor[use]), int(found.position[use])
        if not found.is_output[use] and place < len(names):
            inputs[names[place]] = number
        elif found.is_output[use] and place == 0:
            given = int(found.end[number] - found.begin[number])
    return inputs, given


def _looked_up(
    inputs: dict[str, int], given: int, size: Ints, found: TensorUses, name: str
) -> tuple[int, int]:
    """Return how many rows an operator looks up, and the bytes of one, as wide as its results."""

    def counted(*names: str) -> int:
        number = next((inputs[name] for name in names if name in inputs), -1)
        return int(size[number]) // (_WORD if found.is_word[number] else _HALF_WORD) \
            if number >= 0 else 0  # fmt: skip

    count = counted("indices", "index")
    bags = counted("offsets")
    if bags and name.startswith("fbgemm"):
        bags -= 1  # the last one is the end
    return count, given // (bags or count or 1)


def _updates(trace: Trace, names: dict[int, str]) -> dict[int, int]:
    """Return the backward of each fused lookup: the last lookup's comes first."""
    forward: dict[str, list[int]] = {}
    for row, name in names.items():
        if match := _FORWARD.match(name):
            forward.setdefault(match[1].lower(), []).append(row)
    backward: dict[str, list[int]] = {}
    for row in np.flatnonzero(trace.name_mask("^torch::autograd::CppNode<")).tolist():
        if match := _BACKWARD.match(trace.nodes["name"][row]):
            backward.setdefault(match[1].lower(), []).append(row)
    return {
        row: update
        for name, rows in forward.items()
        if len(rows) == len(backward.get(name, []))
        for row, update in zip(rows, reversed(backward[name]), strict=True)
    }


def stated_lookups(words: Ints, row: Ints, length: Ints, *, is_part: np.ndarray) -> Ints:
    """Return the bytes of a row that computations look up, of tables that they state parts of.

    - ``words``: int64, shape (nodes,): indices that each computation is given; 0 for others.
    - ``row``, ``length``, ``is_part``: Of each access: the computation, the bytes, and whether they
      end a storage but do not begin it; shape (accesses,).
    - Returns int64, shape (accesses,): 0 for what is no lookup.
    """
    given = words[row]
    found: Ints = np.where(is_part & (given > 0), length // np.maximum(given, 1), 0)
    return found


class RowCache(NamedTuple):
    """A cache of the most popular rows of tables, in the first tier."""

    capacity: int  # bytes
    # exponent of Zipf's law: the row that is the k-th most popular of its table is looked up k **
    # -skew times as often as the first. 0 is no skew
    skew: float


def hit_shares(cache: RowCache, size: Ints, width: Ints, read: Ints) -> Floats:
    """Return which share of the lookups of each table a cache of all tables serves.

    It holds the rows that are looked up most, as RecShard places them (Sethi et al., ASPLOS 2022,
    arXiv 2201.10095): no cache of its size serves more.

    - ``size``, ``width``, ``read``: Of each table: its bytes, those of a row, and those looked up;
      shape (tables,).
    - Returns float64, shape (tables,): O(tables).
    """
    rows = np.maximum(size // np.maximum(width, 1), 1).astype(np.float64)
    if cache.capacity >= size.sum():
        return np.ones(rows.size)
    if not cache.skew:
        return np.full(rows.size, cache.capacity / max(int(size.sum()), 1))
    whole = _harmonic(rows, cache.skew)
    # how often the most popular row is looked up; a row is as good as any that is so often
    often = np.log(np.maximum(read, 1) / np.maximum(width, 1) / whole)
    low, high = -cache.skew * np.log(rows.max()) + often.min() - 1, often.max()
    for _ in range(200):
        middle = (low + high) / 2
        held = np.exp(np.clip((often - middle) / cache.skew, -np.inf, np.log(rows)))
        held = np.where(often < middle, 0.0, held)
        if (held * width).sum() > cache.capacity:
            low = middle
        else:
            high = middle
    held = np.exp(np.clip((often - high) / cache.skew, -np.inf, np.log(rows)))
    held = np.where(often < high, 0.0, held)
    found: Floats = np.where(held >= 1, _harmonic(np.maximum(held, 1), cache.skew) / whole, 0.0)
    return np.minimum(found, 1.0)


def _harmonic(count: Floats, skew: float) -> Floats:
    """Return the sum of k ** -skew for k up to each count, by Euler and Maclaurin beyond 64."""
    few = np.minimum(np.floor(count), 64.0)
    total = np.append(0.0, np.cumsum(np.arange(1, 65) ** -skew))[few.astype(np.int64)]
    x = np.maximum(count, 64.0)
    integral = np.log(x / 64) if skew == 1 else (x ** (1 - skew) - 64 ** (1 - skew)) / (1 - skew)
    edges = (x**-skew - 64.0**-skew) / 2 - skew * (x ** (-skew - 1) - 64.0 ** (-skew - 1)) / 12
    found: Floats = total + np.where(count > 64, integral + edges, 0.0)
    return found
