"""Find data dependencies between operations from the tensors that they read and write.

What an operator reads and writes, derived from the text of its schema.

``aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`` reads and
writes its first argument and reads its second; a result that is marked as a part of an argument
is a view of it. A recording has millions of operations but few schemas: each is read once.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.kernels.strings import intern_spans
from nadi.kernels.tensor_accesses import (
    ALIAS,
    FRESH,
    READ,
    SCALAR,
    WORD,
    WRITE,
    AccessEdges,
    Histories,
    Uses,
    find_edges,
    find_own_accesses,
    settle_uses,
)
from nadi.trace.arrays import Bools, Ints, Ints32
from nadi.trace.attributes import Attributes
from nadi.trace.issues import IssueLog
from nadi.trace.operands import TensorUses, tensor_uses
from nadi.trace.schema import DEPS, TENSOR_DEPS
from nadi.trace.trace import Trace

_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\((.*)\)\s*->\s*(.*)", re.DOTALL)
_TENSOR = re.compile(r"Tensor(?:\((?P<alias>[^)]*)\))?[?\[\]\d]*(?:\s+(?P<name>\w+))?")
_NAME = re.compile(r"(?!autograd::|torch::)\w+::(\w+)(?:\.\w+)?")

# these change or query the metadata of a tensor, and leave its data alone
_NO_DATA = re.compile(
    r"(detach|resize|resize_as|set|squeeze|unsqueeze|t|transpose|swapaxes|swapdims|as_strided"
    r"|requires_grad|rename)_|record_stream|is_\w+|result_type|can_cast|retain_grad|barrier"
    r"|(sym_)?(size|stride|numel|storage_offset)|dim"
)
_READS_ALL_THE_SAME = {"is_nonzero"}
# the result has the shape of an argument, whose data is not read; by position
_SHAPE_ONLY = {
    "expand_as": 1, "view_as": 1, "reshape_as": 1, "type_as": 1, "to.other": 1,
    "unflatten_dense_tensors": 1,
}  # fmt: skip
_SHAPE_OF_FIRST = re.compile(r"\w+_like|new_\w+")
_ALLOCATES = re.compile(r"_?(new_)?empty\w*")
_OVERWRITES = re.compile(
    r"(_foreach_)?(copy|fill|zero)_"
    r"|(uniform|normal|random|bernoulli|exponential|cauchy|geometric|log_normal|eye)_"
)
_COLLECTIVES = ("c10d",)


@dataclass(frozen=True)
class Effects:
    """What an operator does to each argument and with each result."""

    # inputs, outputs: by position, bits of ``tensor_accesses``: what is read and written, and which
    # results are new memory unless they lie in that of an argument. The last entry applies to all
    # positions after it.
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    guessed: bool = False  # whether this is a guess, as no schema was recorded

    @property
    def touch_data(self) -> bool:
        """Whether data is read or written, or memory allocated; a view does none of these."""
        return any(self.inputs) or any(flags and not flags & ALIAS for flags in self.outputs)


_NOTHING = Effects((0,), (0,))
# a compiled kernel does not record which of its tensors it writes
KERNEL_EFFECTS = Effects((READ | WRITE,), (WRITE | FRESH,), guessed=True)


def effects_of_schema(schema: str) -> Effects | None:
    """Parse a schema; None if the text is not a schema.

    Arguments marked ``(a!)`` are written, and also read unless the operator is known to overwrite
    them (``copy_``, ``fill_``, ``out=``). Arguments are neither read nor written if the result is
    a view of them. ``c10d`` marks nothing: there arguments named ``output`` are written; without
    one, operators whose name ends in ``_`` write their first tensors.
    """
    found = _SCHEMA.fullmatch(schema.strip())
    if found is None:
        return None
    namespace, name, overload, arguments, results = found.groups()
    if _NO_DATA.fullmatch(name) and name not in _READS_ALL_THE_SAME:
        return _NOTHING
    if namespace in _COLLECTIVES:
        return _collective(name, arguments)
    without_data = _SHAPE_ONLY.get(name, _SHAPE_ONLY.get(f"{name}.{overload}", -1))
    inputs = [
        0 if position == without_data else _argument(name, kind, keyword_only)
        for position, (kind, keyword_only) in enumerate(_arguments(arguments))
    ]
    if inputs and _SHAPE_OF_FIRST.fullmatch(name):
        inputs[0] = 0
    new = FRESH if _ALLOCATES.fullmatch(name) else FRESH | WRITE
    outputs = [_result(kind, new) for kind in _parts(results.strip().removeprefix("("))]
    return Effects((*inputs, 0), (*outputs, 0))


def effects_by_name(name: str) -> Effects | None:
    """Guess what an operator without a schema does; None if the name is not an operator's.

    It reads its arguments and allocates its results. It writes its first argument if its name ends
    in ``_``.
    """
    found = _NAME.fullmatch(name)
    if found is None or _NO_DATA.fullmatch(found[1]):
        return None
    in_place = found[1].endswith("_")
    first = READ if not in_place else WRITE if _OVERWRITES.fullmatch(found[1]) else READ | WRITE
    if _SHAPE_OF_FIRST.fullmatch(found[1]):
        first = 0
    new = FRESH if _ALLOCATES.fullmatch(found[1]) else FRESH | WRITE
    return Effects((first, READ), (new,), guessed=True)


def _argument(name: str, kind: str, keyword_only: bool) -> int:
    found = _TENSOR.match(kind)
    if found is None:
        return 0
    alias = found["alias"]
    if alias is None:
        # the other operand of arithmetic may be a number
        return READ | SCALAR if found["name"] == "other" else READ
    if "!" not in alias:
        return 0  # a view of the argument; if it copies instead, a nested operator does that
    return WRITE if keyword_only or _OVERWRITES.fullmatch(name) else READ | WRITE


def _result(kind: str, new: int) -> int:
    found = _TENSOR.match(kind)
    if found is None:
        return 0
    return new if found["alias"] is None else FRESH | WRITE | ALIAS


def _collective(name: str, arguments: str) -> Effects:
    tensors = [
        (position, str(found["name"]))
        for position, (kind, _) in enumerate(_arguments(arguments))
        if (found := _TENSOR.match(kind))
    ]
    inputs = dict.fromkeys(range(max([position for position, _ in tensors], default=0) + 1), 0)
    stated = [position for position, name in tensors if name.startswith("output")]
    for position, _ in tensors:
        inputs[position] = WRITE if position in stated else READ
    if tensors and not stated and name.endswith("_"):
        inputs[tensors[0][0]] = WRITE if name.startswith("recv") else READ | WRITE
    return Effects((*inputs.values(), 0), (0,))


def _arguments(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each argument, and whether it comes after the ``*``."""
    keyword_only = False
    for part in _parts(text):
        if part == "*":
            keyword_only = True
        elif part:
            yield part, keyword_only


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets; an unmatched closing bracket ends the text."""
    depth = begin = 0
    for at, letter in enumerate(text):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
            if depth < 0:
                text = text[:at]
                break
        elif letter == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    yield text[begin:].strip()


class TensorAccesses(NamedTuple):
    """What operations themselves read and write, without what operations nested in them do."""

    row: Ints  # int64, shape (accesses,): row of the operation
    storage: Ints  # int64: as ``TensorUses`` numbers them
    # begin, end: int64: the bytes of the storage
    begin: Ints
    end: Ints
    # reads, writes: bool
    reads: Bools
    writes: Bools


def tensor_accesses(host: Trace, recorded: TensorUses) -> TensorAccesses:
    """Return what operations read and write, by their schemas.

    - ``host``: As for :func:`tensor_deps`.
    - ``recorded``: The uses of all its nodes.
    - Returns: O(operands).
    """
    effects, of_node = _effects_of_nodes(host, host.attributes)
    touching = np.array([some.touch_data for some in effects], dtype=np.bool_)
    chosen = touching[of_node][recorded.node]
    names = ("node", "position", "is_output", "tensor")
    some = recorded._replace(**{name: getattr(recorded, name)[chosen] for name in names})
    order = _order_of_issue(host)
    uses = _uses(some, effects, of_node, order)
    parent = _ordered_parents(host, order)
    settle_uses(uses, recorded.num_tensors, recorded.num_storages)
    find_own_accesses(uses, parent, recorded.num_storages, np.empty(parent.size, dtype=np.int64))
    op = np.repeat(np.arange(parent.size), np.diff(uses.first))
    own = np.flatnonzero(uses.flags & (READ | WRITE))
    flags = uses.flags[own]
    return TensorAccesses(
        order[op[own]], uses.storage[own], uses.begin[own], uses.end[own],
        (flags & READ) > 0, (flags & WRITE) > 0,
    )  # fmt: skip


@checked
def tensor_deps(trace: Trace) -> pl.DataFrame:
    """Find the data dependencies between operations, which a legal re-ordering must keep.

    Parameters
    ----------
    trace
        A host trace or a linked trace. Its ids must be in the order of issue and its parents must
        be the callers, as in PyTorch's execution traces.

    Returns
    -------
    polars.DataFrame
        ``schema.DEPS`` of the kinds raw, war and waw; empty if no operands are recorded.
        O(operands).
    """
    rows = np.arange(trace.nodes.height)
    return find_tensor_deps(trace, rows, trace.column("start"), IssueLog())


def find_tensor_deps(host: Trace, row_of_node: Ints, start: Ints, log: IssueLog) -> pl.DataFrame:
    """Find the dependencies by tensors of a host trace, as rows of the linked trace.

    - ``host``: The host trace, with operands and schemas among its attributes.
    - ``row_of_node``: int64, shape (host nodes,): the row of each in the linked trace.
    - ``start``: int64 ns, shape (linked nodes,).
    - ``log``: Records guessed and dropped dependencies.
    - Returns: As for :func:`tensor_deps`.
    """
    attributes = host.attributes
    effects, of_node = _effects_of_nodes(host, attributes)
    touching = np.array([some.touch_data for some in effects], dtype=np.bool_)
    recorded = tensor_uses(attributes, touching[of_node])
    if recorded.node.size == 0:
        return DEPS.empty()
    order = _order_of_issue(host)
    uses = _uses(recorded, effects, of_node, order)
    parent = _ordered_parents(host, order)
    last_inside = np.empty(parent.size, dtype=np.int64)
    settle_uses(uses, recorded.num_tensors, recorded.num_storages)
    find_own_accesses(uses, parent, recorded.num_storages, last_inside)
    edges = run_edges(uses, parent, last_inside, recorded.num_storages)
    guessed = np.array([some.guessed for some in effects], dtype=np.bool_)[of_node]
    _note_guesses(recorded, guessed, log)
    found = int(edges.sizes[0])
    src, dst = order[edges.src[:found]], order[edges.dst[:found]]
    inferred = guessed[src] | guessed[dst]
    src, dst = row_of_node[src], row_of_node[dst]
    kept = _possible(start, src, dst, int(edges.sizes[1]), log)
    columns = {
        "src": src[kept],
        "dst": dst[kept],
        "kind": DEPS.coded("kind", edges.kind[:found][kept], TENSOR_DEPS),
        "inferred": inferred[kept],
    }
    return DEPS.build(int(kept.sum()), columns)


def _effects_of_nodes(host: Trace, attributes: Attributes) -> tuple[list[Effects], Ints]:
    """Return the distinct effects, and the number of each node's; int64, shape (nodes,)."""
    effects = [Effects((0,), (0,))]
    of_node = np.zeros(host.nodes.height, dtype=np.int64)
    has_schema = np.zeros(host.nodes.height, dtype=np.bool_)
    for rows, codes, texts in texts_of_nodes(attributes, "op_schema"):
        read = [effects_of_schema(text) for text in texts]
        number = len(effects) + np.arange(len(read))
        effects += [some or effects[0] for some in read]
        known = np.array([some is not None for some in read], dtype=np.bool_)
        of_node[rows] = number[codes]
        has_schema[rows] = known[codes]
    without = np.flatnonzero(~has_schema)
    names = host.nodes["name"].gather(without).cast(pl.String)
    different = names.unique(maintain_order=True).to_list()
    by_name = {name: some for name in different if (some := effects_by_name(name))}
    if by_name:
        numbers = range(len(effects), len(effects) + len(by_name))
        guess = names.replace_strict(list(by_name), numbers, default=0, return_dtype=pl.Int64)
        of_node[without] = guess.to_numpy()
        effects += by_name.values()
    for rows, codes, texts in texts_of_nodes(attributes, "kernel_backend"):
        named = np.array([bool(text) for text in texts], dtype=np.bool_)[codes]
        compiled = rows[named & ~has_schema[rows]]
        of_node[compiled] = len(effects)
    return [*effects, KERNEL_EFFECTS], of_node


def texts_of_nodes(attributes: Attributes, name: str) -> list[tuple[Ints, Ints32, list[str]]]:
    """Return the nodes that have an attribute, the number of its text, and the texts, if any."""
    rows = attributes.rows_named(name)
    rows = rows[(attributes.node[rows] >= 0) & (attributes.length[rows] > 0)]
    if rows.size == 0:
        return []
    text, before = attributes.bytes_around(rows)
    codes, first = intern_spans(
        text, attributes.value[rows] - before, attributes.length[rows].astype(np.int64)
    )
    texts = [attributes.span(row).decode("utf-8", "replace") for row in rows[first].tolist()]
    return [(attributes.node[rows].astype(np.int64), codes, texts)]


def _order_of_issue(host: Trace) -> Ints:
    """Return the nodes in the order of their ids; a parent comes before the nodes in it."""
    ids = host.column("id")
    order = np.argsort(ids, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    parent = host.column("parent")
    nested = np.flatnonzero(parent >= 0)
    # in the order of rows parents always come first, whatever the ids are
    return order if (place[parent[nested]] < place[nested]).all() else np.arange(order.size)


def _ordered_parents(host: Trace, order: Ints) -> Ints:
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    parent = host.column("parent")[order]
    found = np.where(parent >= 0, place[parent], -1)
    return np.where(found < np.arange(order.size), found, -1)  # the kernels climb towards 0


def _uses(recorded: TensorUses, effects: list[Effects], of_node: Ints, order: Ints) -> Uses:
    """Sort the uses, each with what its operation does to the tensor."""
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    op = place[recorded.node]
    flags = _flags(recorded, effects, of_node)
    used = np.flatnonzero(recorded.begin[recorded.tensor] < recorded.end[recorded.tensor])
    if (np.diff(op) < 0).any():
        used = used[np.argsort(op[used], kind="stable")]
    tensor = recorded.tensor[used]
    return Uses(
        first=np.searchsorted(op[used], np.arange(order.size + 1)),
        flags=flags[used] | np.where(recorded.is_word[tensor], WORD, 0),
        tensor=recorded.identity[tensor],
        storage=recorded.storage[tensor],
        begin=recorded.begin[tensor],
        end=recorded.end[tensor],
    )


def _flags(recorded: TensorUses, effects: list[Effects], of_node: Ints) -> Ints:
    """Look up what the operation of each use does at its position; int64, shape (uses,)."""
    lists = [flags for some in effects for flags in (some.inputs, some.outputs)]
    length = np.array([len(flags) for flags in lists])
    first = np.cumsum(length) - length
    flat = np.concatenate([np.array(flags, dtype=np.int64) for flags in lists])
    which = 2 * of_node[recorded.node] + recorded.is_output
    flags: Ints = flat[first[which] + np.minimum(recorded.position, length[which] - 1)]
    return flags


def run_edges(uses: Uses, parent: Ints, last_inside: Ints, num_storages: int) -> AccessEdges:
    """Run :func:`find_edges` with growing buffers until they suffice."""
    num_segments = num_storages + 2 * uses.flags.size + 2
    room = 2 * uses.flags.size + 1024
    while True:
        begin, end, following, writer, last_reader = np.full((5, num_segments), -1, dtype=np.int64)
        reader, before, seen_by = np.empty((3, room), dtype=np.int64)
        found = Histories(
            begin, end, following, writer, last_reader, reader, before, seen_by,
            hint=np.arange(num_storages), sizes=np.array([num_storages, -1, 0]),
        )  # fmt: skip
        src, dst, kind = np.empty((3, room), dtype=np.int64)
        seen = np.full((len(TENSOR_DEPS), parent.size), -1, dtype=np.int64)
        edges = AccessEdges(src, dst, kind, seen, sizes=np.zeros(2, dtype=np.int64))
        if find_edges(uses, parent, last_inside, found, edges):
            return edges
        room *= 4


def _note_guesses(recorded: TensorUses, guessed: Bools, log: IssueLog) -> None:
    with_tensors = np.zeros(guessed.size, dtype=np.bool_)
    with_tensors[recorded.node] = True
    log.add(
        "link.tensor-guessed", "info", int((guessed & with_tensors).sum()),
        "operations have tensors but no schema: which tensors they write is guessed",
        "operators are classified by name; compiled kernels are assumed to read and write all "
        "tensors",
    )  # fmt: skip
    log.add(
        "link.tensor-strides", "info", recorded.num_without_strides,
        "tensors are recorded without strides and assumed to be contiguous",
        "record with a PyTorch whose execution traces have schema 1.1.1 or later",
    )  # fmt: skip


def _possible(start: Ints, src: Ints, dst: Ints, num_before: int, log: IssueLog) -> Bools:
    """Return which dependencies the measured times allow; bool, shape (dependencies,)."""
    if (start < 0).all():
        return np.ones(src.size, dtype=np.bool_)
    timed = (start[src] >= 0) & (start[dst] >= 0)
    too_late = timed & (start[src] > start[dst])
    log.add(
        "link.tensor-untimed", "info", int((~timed).sum()),
        "tensor dependencies belong to operations without a time", "these dependencies are dropped",
    )  # fmt: skip
    log.add(
        "link.tensor-order", "info", int(too_late.sum()) + num_before,
        "operations of different threads use the same tensor at the same time",
        "no dependency is added between them",
    )  # fmt: skip
    return timed & ~too_late
