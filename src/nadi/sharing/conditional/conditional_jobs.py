"""Make a job from a generator and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.files.chakra.chakra_attributes import ColumnOfAttributes
from nadi.models.row_traces import shape_attributes
from nadi.sharing.conditional.conditional_model import ConditionalModel, OperationTemplate
from nadi.sharing.conditional.program_learning import after_visit, facts_of_row, schedule_facts
from nadi.sharing.conditional.stage_programs import (
    AFTER,
    BEFORE,
    LAYER,
    Segment,
    sums_of_products,
    visit_facts,
)
from nadi.sharing.conditional.stage_values import (
    Conditions,
    StageValues,
    members_of,
    spans_stages,
    values_of_stages,
)
from nadi.trace.arrays import Ints
from nadi.trace.attributes import Attributes, LazyAttributes, Part, combined
from nadi.trace.groups import RankGroups
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Provenance, Trace
from nadi.version import __version__

_LARGEST = 2.0**62
_MESSAGES = ("COMM_SEND", "COMM_RECV")


class _Rows(NamedTuple):
    """The operations of a stage: their templates, layers and micro-batches, and their waits.

    The first ``first_segment`` are those of its first segment.
    """

    template: Ints
    layer: Ints
    micro_batch: Ints
    src: Ints
    dst: Ints
    first_segment: int


class _Sizes(NamedTuple):
    """Sizes of templates on a stage; those of messages are put in when all stages have theirs."""

    flops: list[int]
    bytes: list[int]
    comm_bytes: list[int]
    sides: list[list[int]]


def conditional_job(model: ConditionalModel, known: Conditions) -> Job:
    """Make the job of conditions.

    Its collectives have all members and one size for all of them, and its messages arrive, so that
    a simulation ends. Ranks of a stage share a trace. O(operations of all stages).

    - ``known``: All conditions that the learned jobs have.
    """
    stages = values_of_stages(known)
    world = int(np.prod([int(known[axis]) for axis in ("tp", "cp", "dp", "pp")]))
    ways = sorted({one.way for one in model.templates} - {""})
    members = {way: members_of(way, known) for way in ways}
    maker = _Maker(model, members, world // len(stages))
    rows = [maker.rows(values) for values in stages]
    sizes = [_sizes(model, *own) for own in zip(stages, rows, strict=True)]
    _agree(model, rows, sizes)
    used = {model.templates[one].way for own in rows for one in np.unique(own.template)}
    members = {way: members[way] for way in ways if way in used}
    traces = [
        _trace(model, own, size, values, list(members), world)
        for own, size, values in zip(rows, sizes, stages, strict=True)
    ]
    inner = world // len(stages)
    return Job(
        tuple(trace for trace in traces for _ in range(inner)), MATCHES.empty(), ISSUES.empty(),
        rank_groups=RankGroups(members, world),
    )  # fmt: skip


class _Maker:
    """Makes the operations of stages."""

    def __init__(self, model: ConditionalModel, members: Mapping[str, Ints], inner: int) -> None:
        self.model = model
        self.members = members
        self.inner = inner  # ranks of a stage
        self.bodies = {(one.kind, one.slot): one.templates for one in model.bodies}

    def rows(self, values: StageValues) -> _Rows:
        """Return the operations of a stage, in order."""
        first = values.stage * self.inner
        own_ranks = np.arange(first, first + self.inner)
        ways = {
            way: members.shape[1] > 1 and bool(np.isin(own_ranks, members).all())
            for way, members in self.members.items()
        } | {"": True}
        has_others = [self._has_others(one, values, ways) for one in self.model.templates]

        @cache
        def body(kind: str, slot: int, own: tuple[tuple[str, float], ...]) -> _Visited:
            return self._visited(kind, slot, values.facts | dict(own), has_others)

        program, first = _Program(), 0
        for segment in self._segments(values):
            program.first = {}
            climbs = self.model.climbs[self.model.kinds.index(segment.kind)]
            layers = values.layers if climbs else values.layers[::-1]
            at = [(BEFORE, -1), *((LAYER, one) for one in layers), (AFTER, -1)]
            for slot, layer in at:
                own = visit_facts(segment, slot, layer, values)
                program.add(body(segment.kind, slot, own), layer, segment.micro_batch)
            first = first or len(program.template)
        return program.rows(first)

    def _segments(self, values: StageValues) -> list[Segment]:
        kinds = self.model.kinds
        of_each = [values.micro_batches if one else 1 for one in self.model.batched]
        done, before = [0] * len(kinds), -1
        found = []
        while sum(done) < sum(of_each):
            facts = schedule_facts(kinds, done, of_each, before, values)
            kind = self.model.schedule.decide(facts)
            if not 0 <= kind < len(kinds) or done[kind] >= of_each[kind]:
                # beyond what was learned: what is left, in the order of kinds
                kind = next(one for one in range(len(kinds)) if done[one] < of_each[one])
            batch = done[kind] if self.model.batched[kind] else -1
            found.append(Segment(kinds[kind], batch))
            done[kind] += 1
            before = kind
        return found

    def _has_others(
        self, template: OperationTemplate, values: StageValues, ways: Mapping[str, bool]
    ) -> bool:
        """Return whether those whom an operation of a stage communicates with are there.

        Where few jobs were learned, a tree may say otherwise.

        - ``ways``: Whether all ranks of the stage are in groups of several that lie so.
        """
        if template.key.node_kind in _MESSAGES:
            return 0 <= values.stage + template.peer < values.stages
        return ways[template.way]

    def _visited(
        self, kind: str, slot: int, facts: dict[str, float], has_others: Sequence[bool]
    ) -> _Visited:
        chosen = [
            one for one in self.bodies.get((kind, slot), ())
            if has_others[one] and self.model.templates[one].present.decide(facts)
        ]  # fmt: skip
        return [
            (
                one, self.model.templates[one].key.stream,
                [
                    (wait.stream, wait.template) for wait in self.model.templates[one].waits
                    if wait.holds.decide(facts_of_row(facts, place))
                ],
            )
            for place, one in enumerate(chosen)
        ]  # fmt: skip


_Visited = list[tuple[int, int, list[tuple[int, int]]]]


class _Program:
    """The operations of a stage while they are written."""

    def __init__(self) -> None:
        self.template: list[int] = []
        self.layer: list[int] = []
        self.micro_batch: list[int] = []
        self.src: list[int] = []
        self.dst: list[int] = []
        self.last: dict[tuple[int, int], int] = {}
        self.first: dict[int, int] = {}

    def add(self, visited: _Visited, layer: int, micro_batch: int) -> None:
        """Add a visit; what operations wait for is looked up by stream and template."""
        if not visited:
            return
        last = self.last = after_visit(self.last, self.first)
        self.first = {}
        row = len(self.template)
        for template, stream, waits in visited:
            for src in {last[one] for one in waits if one in last}:
                self.src.append(src)
                self.dst.append(row)
            last[stream, -1] = last[-1, template] = last[-1, -1] = row
            self.first.setdefault(stream, row)
            self.template.append(template)
            row += 1
        self.layer += [layer] * len(visited)
        self.micro_batch += [micro_batch] * len(visited)

    def rows(self, first_segment: int) -> _Rows:
        """Return what was added."""
        columns = self.template, self.layer, self.micro_batch, self.src, self.dst
        arrays = [np.array(one, dtype=np.int64) for one in columns]
        return _Rows(arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], first_segment)


def _sizes(model: ConditionalModel, values: StageValues, rows: _Rows) -> _Sizes:
    found = _Sizes([], [], [], [])
    of_stage = values.sizes | values.facts
    used = set(rows.template.tolist())
    own = [
        [_whole(law.at(of_stage), 1) for law in one.sides] if number in used else []
        for number, one in enumerate(model.templates)
    ]
    table = np.array([one or [-1] * 4 for one in own], dtype=np.int64)
    first = slice(rows.first_segment)
    names = [model.templates[one].key.name for one in rows.template[first].tolist()]
    of_stage |= sums_of_products(
        table[rows.template[first]], rows.layer[first], names, values.sizes
    )
    for number, (one, sides) in enumerate(zip(model.templates, own, strict=True)):
        of_row = of_stage | {f"side_{place}": float(side) for place, side in enumerate(sides)}
        for law, column in zip((one.flops, one.bytes, one.comm_bytes), found[:3], strict=True):
            stated = law if number in used else None
            column.append(-1 if stated is None else _whole(stated.at(of_row), 0))
        found.sides.append(sides)
    return found


def _whole(size: float, least: int) -> int:
    """Return a size that a column can hold."""
    return max(round(min(size, _LARGEST)), least)


def _agree(model: ConditionalModel, rows: Sequence[_Rows], sizes: Sequence[_Sizes]) -> None:
    """Give what several stages take part in one size: that of the first stage, or of who sends."""
    names: dict[str, int] = {}
    for own, size in zip(rows, sizes, strict=True):
        for number in np.unique(own.template).tolist():
            one = model.templates[number]
            if one.way and spans_stages(one.way) and one.key.node_kind == "COMM_COLL":
                size.comm_bytes[number] = names.setdefault(
                    f"{one.key.name} {one.way}", size.comm_bytes[number]
                )
    for stage, (own, size) in enumerate(zip(rows, sizes, strict=True)):
        for number in np.unique(own.template).tolist():
            one = model.templates[number]
            if one.key.node_kind != "COMM_RECV" or not 0 <= stage + one.peer < len(rows):
                continue
            other = stage + one.peer
            sent = [
                sizes[other].comm_bytes[sender]
                for sender in np.unique(rows[other].template).tolist()
                if model.templates[sender].key.node_kind == "COMM_SEND"
                and model.templates[sender].peer == -one.peer
            ]
            size.comm_bytes[number] = sent[0] if sent else size.comm_bytes[number]


def _trace(
    model: ConditionalModel, rows: _Rows, sizes: _Sizes, values: StageValues,
    ways: Sequence[str], world: int,
) -> Trace:  # fmt: skip
    """Return the trace that all ranks of a stage share."""
    templates = model.templates
    own = [
        way for way in ways if any(templates[one].way == way for one in np.unique(rows.template))
    ]
    place = {"": -1} | {way: number for number, way in enumerate(own)}
    number = rows.template
    kind = np.array([one.key.node_kind for one in templates])[number]
    peer = values.stage + np.array([one.peer for one in templates])[number]
    names, name = _names(templates, rows)
    texts = {
        "kind": [one.key.node_kind for one in templates],
        "comm_type": [one.key.comm_type for one in templates],
        "phase": [one.key.phase for one in templates],
    }
    nodes = NODES.build(number.size, {
        "id": np.arange(number.size),
        "name": pl.Series(names, dtype=NODES.dtypes["name"]).gather(name),
        **{key: pl.Series(of, dtype=NODES.dtypes[key]).gather(number) for key, of in texts.items()},
        "category": "kernel", "is_cpu": False, "device": 0,
        "stream": np.array([one.key.stream for one in templates])[number],
        "layer": rows.layer, "micro_batch": rows.micro_batch,
        **{key: np.array(getattr(sizes, key), dtype=np.int64)[number]
           for key in ("flops", "bytes", "comm_bytes")},
        "group": np.array([place.get(one.way, -1) for one in templates])[number],
        "dst": np.where(kind == "COMM_SEND", peer, -1),
        "src": np.where(kind == "COMM_RECV", peer, -1),
        "tag": _tags(kind, peer),
    })  # fmt: skip
    return Trace(
        nodes=nodes,
        deps=DEPS.build(rows.src.size, {"src": rows.src, "dst": rows.dst, "kind": "data"}),
        groups=GROUPS.build(len(own), {"name": own, "ranks": [[] for _ in own]}),
        issues=ISSUES.empty(), provenance=Provenance(__version__, ()), world_size=world,
        given_attributes=LazyAttributes(lambda: _attributes(templates, sizes, number)),
    )  # fmt: skip


def _names(templates: Sequence[OperationTemplate], rows: _Rows) -> tuple[list[str], Ints]:
    """Return the different names, and which each operation has."""
    key = rows.template * (rows.layer.max() + 2) + rows.layer + 1
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    names = [
        templates[one].key.name.replace("#", str(layer), 1)
        for one, layer in zip(rows.template[first], rows.layer[first], strict=True)
    ]
    return names, number.reshape(-1)


def _tags(kind: np.ndarray, peer: Ints) -> Ints:
    """Return the number of each message among those that go the same way."""
    found = np.full(kind.size, -1, dtype=np.int64)
    for way in _MESSAGES:
        for other in np.unique(peer[kind == way]).tolist():
            own = np.flatnonzero((kind == way) & (peer == other))
            found[own] = np.arange(own.size)
    return found


def _attributes(templates: Sequence[OperationTemplate], sizes: _Sizes, number: Ints) -> Attributes:
    parts = []
    for name in ("op_class", "dtype"):
        values = [getattr(one.key, name) for one in templates]
        known = tuple(dict.fromkeys(value for value in values if value))
        code = np.array([known.index(value) if value else -1 for value in values])[number]
        parts.append(Part(ColumnOfAttributes(name, "string", code, known).attributes()))
    parts.append(Part(shape_attributes(sizes.sides, number)))
    return combined(parts)
