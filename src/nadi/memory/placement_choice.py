"""Where tensors live: by rules, by name, or as the first tier has room for those that move most.

A placement is, for each different trace, the tier of each life of ``TraceTensors.table``: int64, 0
for the first tier and then the tiers of the system in their order. What chooses one is a
:class:`Placer`; a solver is one as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.memory.placed_tensors import JobTensors, TraceTensors
from nadi.memory.room_kernels import fill_room
from nadi.systems.memory_tiers import OWN_TIERS, rate_alone
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import TENSOR_ROLES
from nadi.units import parse_bytes, parse_ns

_RULE = re.compile(r"([\w*:]+)(?:\.(\w+))?(?:([<>])([^=]+))?=(.+)")
_FIELDS = {"size": ("bytes", parse_bytes), "reuse": ("reuse", parse_bytes),
           "life": ("", parse_ns)}  # fmt: skip
_FORM = 'write it as "optimizer=cxl", "activations>64MB=cxl", "*.reuse>1GB=cxl" or "0:17=cxl"'


class TierRoom(NamedTuple):
    """What a tier has for one rank.

    Attributes
    ----------
    name
        The first tier is ``hbm``.
    capacity
        Bytes: its share of a memory that several ranks have together; infinite if unknown.
    read_rate, write_rate
        Bytes per ns that a rank reaches alone; infinite without a limit.
    latency
        ns.
    shared_by
        Neighboring ranks that have it together; 0 for all.
    """

    name: str
    capacity: float
    read_rate: float = math.inf
    write_rate: float = math.inf
    latency: float = 0.0
    shared_by: int = 1


class Placer(Protocol):
    """Chooses where tensors live."""

    def __call__(self, tensors: JobTensors, rooms: Sequence[TierRoom]) -> tuple[Ints, ...]:
        """Return a placement, as this module describes it.

        ``rooms`` are all tiers, the first one without its buffers.
        """
        ...


def rooms_of(system: System, buffers: int = 0) -> tuple[TierRoom, ...]:
    """Return what the tiers of a system have for a rank.

    Parameters
    ----------
    buffers
        Bytes of the first tier that buffers take.
    """
    own = system.own_tier
    left = max(own.capacity - buffers, 0) if own.capacity else math.inf
    rooms = [TierRoom(OWN_TIERS[0], left)]
    for tier in system.tiers:
        sharing = tier.shared_by or system.network.num_ranks
        capacity = tier.capacity / sharing if tier.capacity else math.inf
        rates = (rate_alone(tier, system.path_of(tier), store=store) for store in (False, True))
        read, write = (rate or math.inf for rate in rates)
        rooms.append(TierRoom(tier.name, capacity, read, write, tier.latency, tier.shared_by))
    return tuple(rooms)


def moves_ever(tensors: TraceTensors) -> Bools:
    """Return which lives would ever move, if they lived in a lower tier; bool, shape (lives,).

    Others are used only within one visit to a buffer.
    """
    found: Bools = tensors.column("loaded") + tensors.column("stored") > 0
    return found


class ByRoom:
    """Fills one tier after the other, first with what moves most for the room that it takes.

    Parameters
    ----------
    by_time
        Whether room is bytes times the time that they live. Then what lives all the step and is
        used once, such as the state of an optimizer, is the first to go; else room is bytes, and
        activations that wait for their backward go as well.
    """

    def __init__(self, *, by_time: bool = True) -> None:
        self.by_time = by_time

    def __call__(self, tensors: JobTensors, rooms: Sequence[TierRoom]) -> tuple[Ints, ...]:
        """Return a placement; what has no room anywhere is in the last tier. O(n log n)."""
        return tuple(self._of_trace(tensors, one, rooms) for one in tensors.traces)

    def _of_trace(
        self, of_job: JobTensors, tensors: TraceTensors, rooms: Sequence[TierRoom]
    ) -> Ints:
        size = tensors.column("bytes")
        moved = tensors.column("loaded") + tensors.column("stored")
        takes = size.astype(np.float64)
        if self.by_time:
            takes *= tensors.column("end") - tensors.column("begin")
        density = moved / np.maximum(takes, 1.0)
        moments, where = np.unique(
            np.stack([tensors.column("begin"), tensors.column("end")]), return_inverse=True
        )
        begin, end = where.reshape(2, -1)
        tier = np.full(size.size, len(rooms) - 1, dtype=np.int64)
        # what never moves is in buffers of the first tier, wherever it is said to live
        left = np.lexsort((np.arange(size.size), -density, moved > 0))
        for number, room in enumerate(rooms[:-1] if len(rooms) > 1 else ()):
            fits = np.zeros(size.size, dtype=np.bool_)
            capacity = -1 if math.isinf(room.capacity) else int(room.capacity)
            share = of_job.share_of_rank(tensors, room.shared_by)
            fill_room(left, begin, end, share, capacity, moments.size, fits)
            tier[left[fits[left]]] = number
            left = left[~fits[left]]
        tier[moved == 0] = 0
        return tier


class PlacementRule(NamedTuple):
    """Where some tensors live.

    Attributes
    ----------
    who
        A role, ``*`` for all, or a tensor by trace and storage, such as ``0:17``.
    field, sign, limit
        A condition: ``bytes``, ``reuse`` or ``""`` for the time of its life, ``<`` or ``>``, and
        bytes or ns. ``sign`` is empty without one.
    tier
        Name of the tier.
    """

    who: str
    field: str
    sign: str
    limit: float
    tier: str


def parse_rules(text: str) -> tuple[PlacementRule, ...]:
    """Read rules such as ``optimizer=cxl,activations>64MB=cxl``; the first that fits counts.

    Raises
    ------
    UsageError
        If a rule cannot be read.
    """
    found = []
    for one in (part.strip() for part in text.split(",")):
        if not one:
            continue
        match = _RULE.fullmatch(one)
        if match is None:
            raise UsageError(Parameter("place", one), "it is no rule", _FORM)
        who, field, sign, limit, tier = match.groups()
        if bool(field) and not sign:
            raise UsageError(Parameter("place", one), f"{field} has no limit", _FORM)
        if field and field not in _FIELDS:
            raise UsageError(
                Parameter("place", one), f"there is no {field}", f"use one of {', '.join(_FIELDS)}"
            )
        column, parse = _FIELDS[field or "size"]
        try:
            number = parse(limit) if sign else 0
        except ValueError as error:
            raise UsageError(Parameter("place", one), str(error), _FORM) from None
        found.append(PlacementRule(who, column, sign or "", number, tier.strip()))
    return tuple(found)


class ByRules:
    """Places tensors as rules say; what none fits lives in the first tier.

    Parameters
    ----------
    rules
        In their order.
    where
        What an error names: an option or a file.
    """

    def __init__(self, rules: Sequence[PlacementRule], where: str | Parameter = "") -> None:
        self.rules, self.where = tuple(rules), where or Parameter("place")

    @classmethod
    def of_names(cls, names: Mapping[str, str], where: str) -> ByRules:
        """Make rules of a table from roles or tensors to tiers, as a file has them."""
        return cls([PlacementRule(who, "bytes", "", 0, tier) for who, tier in names.items()], where)

    def __call__(self, tensors: JobTensors, rooms: Sequence[TierRoom]) -> tuple[Ints, ...]:
        """Return a placement.

        Raises
        ------
        UsageError
            If a rule names a tier or a tensor that there is not.
        """
        tiers = {room.name: number for number, room in enumerate(rooms)}
        tiers |= dict.fromkeys(OWN_TIERS, 0)
        for rule in self.rules:
            if rule.tier not in tiers:
                names = ", ".join(room.name for room in rooms)
                raise UsageError(
                    self.where, f"there is no tier {rule.tier!r}", f"use one of {names}"
                )
        found = [np.full(one.table.height, -1, dtype=np.int64) for one in tensors.traces]
        for rule in self.rules:
            is_known = rule.who in (*TENSOR_ROLES, "*")
            for one, tier in zip(tensors.traces, found, strict=True):
                fits = _fitting(rule, one)
                is_known |= rule.who.partition(":")[0] == str(one.number) and bool(fits.any())
                tier[fits & (tier < 0)] = tiers[rule.tier]
            if not is_known:
                raise UsageError(
                    self.where, f"there is no tensor {rule.who!r} in this job",
                    f"name one of {', '.join(TENSOR_ROLES)}, or a tensor as in tensors.csv "
                    "(nadi memory plan writes it)",
                )  # fmt: skip
        return tuple(
            np.where(moves_ever(one), np.maximum(tier, 0), 0)
            for one, tier in zip(tensors.traces, found, strict=True)
        )


def _fitting(rule: PlacementRule, tensors: TraceTensors) -> Bools:
    """Return the lives of a trace that a rule is about."""
    table = tensors.table
    if ":" in rule.who:
        trace, _, storage = rule.who.partition(":")
        chosen = (table["storage"].cast(pl.String) == storage).to_numpy() & (
            trace == str(tensors.number)
        )
    elif rule.who == "*":
        chosen = np.ones(table.height, dtype=np.bool_)
    else:
        chosen = (table["role"].cast(pl.String) == rule.who).to_numpy()
    if not rule.sign:
        return chosen
    value = tensors.column(rule.field) if rule.field else (
        tensors.column("end") - tensors.column("begin")
    )  # fmt: skip
    return chosen & (value > rule.limit if rule.sign == ">" else value < rule.limit)
