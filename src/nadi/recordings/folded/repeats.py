"""Process groups by role, of ranks that state their own groups: which group of one is like whose.

Two ranks have the same work if their operations are equal but for times, for whom they exchange
messages with and for which ranks form their groups. A group that one of them uses where the other
uses another is of the same role, and so is a group that both are in. What follows is as
:class:`nadi.trace.groups.RankGroups` has it, if groups of a role have one size and share no
rank.

Traces whose attributes do not restate their columns, as those that are made in code.

Operands as columns, of traces that state them as columns or as texts.

Digests of what a trace does, whatever time it takes and with whichever ranks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.files.chakra.chakra_attributes import NAMES_OF_COLUMNS
from nadi.recordings.folded.row_values import TIMES
from nadi.trace.arrays import Ints, numbered_texts
from nadi.trace.attributes import Attributes, LazyAttributes
from nadi.trace.groups import RankGroups
from nadi.trace.operands import OPERAND_NAMES, AttributesWithOperands, OperandColumns, TensorType
from nadi.trace.operations import DTYPES
from nadi.trace.schema import GROUPS, TENSOR_ROLES
from nadi.trace.trace import Provenance, Trace


class WorkDigests:
    """Digests of traces; what several have in common is digested once.

    Two traces with the same digest of 128 bits do the same but for a chance of 2^-64 among
    four billion traces.
    """

    def __init__(self) -> None:
        # with what it is of, so that no other takes its place in memory
        self._known: dict[tuple[int, str], tuple[object, bytes]] = {}

    def whole(self, trace: Trace) -> bytes:
        """Return a digest that tells traces apart unless only their times differ."""
        said = _of_series([trace.nodes["src"], trace.nodes["dst"], trace.groups["name"]])
        return self.work(trace) + blake2b(said, digest_size=16).digest()

    def work(self, trace: Trace) -> bytes:
        """Return a digest of operations, without times, groups and peers."""
        digest = blake2b(digest_size=16)
        names = [name for name in trace.nodes.columns if name not in (*TIMES, "src", "dst")]
        digest.update(b"".join(self._series(trace.nodes[name]) for name in names))
        digest.update(self._of("deps", trace.deps, lambda: _of_frame(trace.deps)))
        digest.update(str(trace.groups.height).encode())
        given = trace.given_attributes
        digest.update(self._of("attributes", given, lambda: _of_attributes(given)))
        return digest.digest()

    def _series(self, series: pl.Series) -> bytes:
        return blake2b(_of_series([series]), digest_size=16).digest()

    def _of(self, what: str, value: object, made: object) -> bytes:
        key = id(value), what
        if key not in self._known:
            assert callable(made)
            self._known[key] = value, blake2b(made(), digest_size=16).digest()
        return self._known[key][1]


def _of_series(listed: list[pl.Series]) -> bytes:
    parts = []
    for series in listed:
        values = series
        if series.dtype == pl.String:
            numbers, texts = numbered_texts(series)
            parts.append("\0".join(texts).encode())
            values = pl.Series(numbers)
        parts.append(np.ascontiguousarray(values.to_physical().to_numpy()).tobytes())
        parts.append(str(series.len()).encode())
    return b"\1".join(parts)


def _of_frame(frame: pl.DataFrame) -> bytes:
    return _of_series(frame.get_columns())


def _of_attributes(given: Attributes | LazyAttributes) -> bytes:
    if isinstance(given, AttributesWithOperands):
        others, operands = given.without_operands, given.operands
        arrays = [one for one in operands if isinstance(one, np.ndarray)]
        content = b"\1".join(one.tobytes() for one in arrays)
        known = operands.types, operands.device, operands.roles
        return _plain(others) + content + repr(known).encode()
    return _plain(given.value if isinstance(given, LazyAttributes) else given)


def _plain(attributes: Attributes) -> bytes:
    own = attributes.with_own_bytes()
    order = sorted(range(len(own.names)), key=own.names.__getitem__)
    place = np.argsort(np.array(order, dtype=np.int64)) if order else np.zeros(0, dtype=np.int64)
    arrays = (own.node, place[own.name], own.type, own.value, own.length, own.buffers[0])
    said = "\0".join(own.names[k] for k in order).encode()
    return said + b"\1".join(np.ascontiguousarray(one).tobytes() for one in arrays)


_Group = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class RankClasses:
    """Ranks that do the same.

    Attributes
    ----------
    traces
        Of each rank, its own times and the groups of its class: roles, if there are any.
    of
        int64, shape (ranks,): the class of each rank, from 0 in order of the lowest ranks.
    groups
        Which ranks form the groups of roles; None if traces state their groups.
    """

    traces: tuple[Trace, ...]
    of: Ints
    groups: RankGroups | None

    @property
    def first(self) -> Ints:
        """The lowest rank of each class; int64, shape (classes,)."""
        return np.unique(self.of, return_index=True)[1]


@checked
def classes_of_ranks(
    traces: Sequence[Trace], groups: RankGroups | None, *, numbered: bool
) -> RankClasses:
    """Find which ranks do the same.

    Parameters
    ----------
    traces
        Of each rank.
    groups
        If traces name roles.
    numbered
        Whether traces are of ranks 0, 1, 2 and so on; else groups cannot be roles.

    Returns
    -------
    RankClasses
        Each rank in a class of its own where their groups have no roles. O(nodes).
    """
    digests = WorkDigests()
    if groups is None and numbered and len(traces) > 1:
        found = _with_roles(traces, digests)
        if found is not None:
            traces, groups = found
    shares = groups is not None or len(set(traces)) < len(traces)
    known = {trace: digests.whole(trace) for trace in dict.fromkeys(traces)} if shares else {}
    keys = [known[trace] if shares else k for k, trace in enumerate(traces)]
    number: dict[object, int] = {}
    of = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
    return RankClasses(tuple(traces), of, groups)


def _with_roles(
    traces: Sequence[Trace], digests: WorkDigests
) -> tuple[list[Trace], RankGroups] | None:
    """Return traces that name roles; None if their groups have none."""
    traces = [_without_others(trace, rank) for rank, trace in enumerate(traces)]
    own = [_groups_of(trace) for trace in traces]
    if any(listed is None for listed in own):
        return None
    stated = [listed or [] for listed in own]
    works = [digests.work(trace) for trace in traces]
    slots = [(work, len(groups)) for work, groups in zip(works, stated, strict=True)]
    role_of = _roles(slots, stated)
    members: dict[int, dict[_Group, None]] = {}
    for (work, _), groups in zip(slots, stated, strict=True):
        for row, group in enumerate(groups):
            members.setdefault(role_of[work, row], {})[group] = None
    if not all(map(_can_be_a_role, members.values())):
        return None
    names = _names(members, traces, slots, role_of)
    of_name: dict[str, dict[_Group, None]] = {}
    for role, listed in members.items():
        of_name.setdefault(names[role], {}).update(listed)
    roles = RankGroups(
        {
            name: np.array(sorted(ranks for _, ranks in listed), dtype=np.int64)
            for name, listed in of_name.items()
        },
        len(traces),
    )
    named: list[Trace] = []
    for rank, (trace, (work, size)) in enumerate(zip(traces, slots, strict=True)):
        own_names = [names[role_of[work, row]] for row in range(size)]
        found = _by_role(trace, rank, own_names, roles)
        if found is None or len(set(own_names)) < size:
            return None
        named.append(found)
    return named, roles


def _can_be_a_role(groups: Iterable[_Group]) -> bool:
    """Return whether groups have one size and share no rank."""
    ranks = [ranks for _, ranks in groups]
    flat = [rank for of_group in ranks for rank in of_group]
    return len(set(map(len, ranks))) == 1 and len(set(flat)) == len(flat)


def _without_others(trace: Trace, rank: int) -> Trace:
    """Return a trace without groups that the rank is not in, if it does not use them."""
    used = np.zeros(trace.groups.height + 1, dtype=np.bool_)
    used[trace.column("group")] = True
    stays = trace.groups["ranks"].list.contains(rank).to_numpy() | used[:-1]
    if stays.all():
        return trace
    new_row = np.append(np.where(stays, np.cumsum(stays) - 1, -1), -1)
    nodes = trace.nodes.with_columns(group=pl.Series(new_row[trace.column("group")]))
    return replace(trace, nodes=nodes, groups=trace.groups.filter(pl.Series(stays)))


def _groups_of(trace: Trace) -> list[_Group] | None:
    """Return name and ranks of each group; None if ranks are not stated."""
    found = [
        (name, tuple(ranks)) for name, ranks in trace.groups.select("name", "ranks").iter_rows()
    ]
    return None if any(not ranks for _, ranks in found) else found


def _roles(
    slots: Sequence[tuple[bytes, int]], stated: Sequence[Sequence[_Group]]
) -> dict[tuple[bytes, int], int]:
    """Return the role of each group of each kind of work: those joined by common groups."""
    above: dict[object, object] = {}

    def top(one: object) -> object:
        while above.setdefault(one, one) != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    for (work, _), groups in zip(slots, stated, strict=True):
        for row, group in enumerate(groups):
            above[top((work, row))] = top(group)
    number: dict[object, int] = {}
    return {
        (work, row): number.setdefault(top((work, row)), len(number))
        for work, size in dict.fromkeys(slots)
        for row in range(size)
    }


def _names(
    members: Mapping[int, Mapping[_Group, None]], traces: Sequence[Trace],
    slots: Sequence[tuple[bytes, int]], role_of: Mapping[tuple[bytes, int], int],
) -> dict[int, str]:  # fmt: skip
    """Name each role by how its groups are described; those of one name are one role if they fit.

    Ranks of different work, such as stages of a pipeline, have roles of the same name.
    """
    said: dict[int, set[str]] = {role: set() for role in members}
    for trace, (work, size) in zip(traces, slots, strict=True):
        descriptions = trace.groups["description"].to_list()
        for row in range(size):
            said[role_of[work, row]].add(descriptions[row])
    words = {role: next(iter(one)) if len(one) == 1 else "" for role, one in said.items()}
    fits = {
        word: _can_be_a_role([g for role in members if words[role] == word for g in members[role]])
        for word in set(words.values())
    }
    return {
        role: word if word and fits[word] else f"{word or 'group'}-{role}"
        for role, word in words.items()
    }


def _by_role(trace: Trace, rank: int, names: Sequence[str], roles: RankGroups) -> Trace | None:
    """Return a trace that names roles; None if a message goes beyond its group."""
    of_node, columns = trace.column("group"), {}
    for name in ("src", "dst"):
        ends = trace.column(name).copy()
        for row, role in enumerate(names):
            chosen = np.flatnonzero((of_node == row) & (ends >= 0))
            if not chosen.size:
                continue
            peers = ends[chosen]
            if peers.max() >= roles.world_size:
                return None
            group, position = (column[peers] for column in roles.place[role])
            if (group != roles.place[role][0][rank]).any():
                return None
            ends[chosen] = position
        columns[name] = pl.Series(name, ends)
    groups = GROUPS.build(len(names), {
        "name": list(names), "ranks": [[] for _ in names], "backend": trace.groups["backend"],
    })  # fmt: skip
    return replace(
        trace, nodes=trace.nodes.with_columns(**columns), groups=groups, rank=-1,
        world_size=roles.world_size, process=-1,
    )  # fmt: skip


_ON_HOST = "is_cpu_op"


def plain_trace(trace: Trace) -> Trace:
    """Return a trace of a Chakra file without attributes that restate columns.

    Where a node runs is a column then, too: in such a file it is on the host only if it says so.
    Other traces stay as they are.
    """
    sources = trace.provenance.sources
    if not (sources and sources[0].format.startswith("Chakra")):
        return trace
    given = trace.attributes
    stated = np.zeros(trace.nodes.height, dtype=np.bool_)
    stated[trace.given_attributes.nodes_with(_ON_HOST)] = True
    on_host = trace.nodes["is_cpu"].to_numpy() & stated
    restating = [k for k, name in enumerate(given.names) if name in NAMES_OF_COLUMNS]
    kept = given.filtered(~np.isin(given.name, restating))
    return replace(
        trace,
        nodes=trace.nodes.with_columns(is_cpu=pl.Series(on_host)),
        provenance=Provenance(trace.provenance.nadi_version, ()),
        given_attributes=LazyAttributes(lambda: kept),
    )


_TORCH = {dtype.cpp[0]: dtype.torch for dtype in DTYPES}
_COLUMNS = ("row", "is_output", "position", "tensor_id", "storage_id", "offset", "kind", "role")


def operands_apart(trace: Trace) -> tuple[OperandColumns | None, Attributes]:
    """Return the operands of a trace as columns, and its other attributes.

    None, and all attributes, if it has no operands, or its texts say more than columns do, such
    as strides or scalars.
    """
    if trace.operand_columns is not None:
        return trace.operand_columns, trace.attributes_without_operands
    attributes = trace.attributes
    codes = [number for number, name in enumerate(attributes.names) if name in OPERAND_NAMES]
    of_operands = np.isin(attributes.name, codes)
    if not of_operands.any():
        return None, attributes
    columns = _columns(trace)
    if columns is None or not _same(columns.texts(), attributes.filtered(of_operands)):
        return None, attributes
    return columns, attributes.filtered(~of_operands)


def _columns(trace: Trace) -> OperandColumns | None:
    operands, tensors = trace.operands, trace.tensors
    devices = tensors["device"].unique().cast(pl.String).to_list()
    dtypes = tensors["dtype"].cast(pl.String)
    plain = (
        len(devices) == 1
        and (operands["tensor"] >= 0).all()
        and dtypes.is_in(list(_TORCH)).all()
        and (tensors["strides"].list.len() == 0).all()
    )
    if not plain:
        return None
    shapes = tensors["shape"].to_list()
    types: dict[TensorType, int] = {}
    kind = [
        types.setdefault(TensorType(tuple(shape), _TORCH[dtype]), len(types))
        for shape, dtype in zip(shapes, dtypes.to_list(), strict=True)
    ]
    numbers = {name: tensors[name].to_numpy() for name in ("tensor_id", "storage_id", "offset")}
    return OperandColumns(
        node=operands["node"].to_numpy(), is_output=operands["is_output"].to_numpy(),
        position=operands["position"].to_numpy(), tensor=operands["tensor"].to_numpy(),
        **numbers, kind=np.array(kind, dtype=np.int64), types=tuple(types), device=devices[0],
        role=np.full(len(shapes), -1), roles=(),
    )  # fmt: skip


def _same(made: Attributes, stated: Attributes) -> bool:
    """Return whether attributes are the same, in whatever order of a node."""
    if len(made) != len(stated):
        return False
    return sorted(_keys(made)) == sorted(_keys(stated))


def _keys(attributes: Attributes) -> list[tuple[int, str, bytes]]:
    names = attributes.names
    return [
        (node, names[name], attributes.span(row))
        for row, (node, name) in enumerate(
            zip(attributes.node.tolist(), attributes.name.tolist(), strict=True)
        )
    ]


def frame_of_operands(columns: OperandColumns | None) -> pl.DataFrame:
    """Return operands as a row for each, with the ids of its tensor."""
    if columns is None:
        return pl.DataFrame(schema={
            name: pl.Boolean if name == "is_output" else pl.Int64 for name in _COLUMNS
        })  # fmt: skip
    tensor = columns.tensor
    roles = np.array([*map(TENSOR_ROLES.index, columns.roles), -1])  # the last is of none
    return pl.DataFrame({
        "row": columns.node, "is_output": columns.is_output, "position": columns.position,
        "tensor_id": columns.tensor_id[tensor], "storage_id": columns.storage_id[tensor],
        "offset": columns.offset[tensor], "kind": columns.kind[tensor],
        "role": roles[columns.role[tensor]],
    })  # fmt: skip


def operands_of_frame(
    frame: pl.DataFrame, types: tuple[TensorType, ...], device: str
) -> OperandColumns:
    """Return operands as columns; the inverse of :func:`frame_of_operands`."""
    tensor = frame.select("tensor_id", "storage_id", "offset", "kind", "role")
    known = tensor.unique(maintain_order=True)
    number: Ints = (
        tensor.join(
            known.with_row_index("number"), on=tensor.columns, how="left", maintain_order="left"
        )["number"].cast(pl.Int64).to_numpy()
    )  # fmt: skip
    return OperandColumns(
        node=frame["row"].to_numpy(), is_output=frame["is_output"].to_numpy(),
        position=frame["position"].to_numpy(), tensor=number,
        **{name: known[name].to_numpy() for name in known.columns}, types=types, device=device,
        roles=TENSOR_ROLES if (known["role"] >= 0).any() else (),
    )  # fmt: skip
