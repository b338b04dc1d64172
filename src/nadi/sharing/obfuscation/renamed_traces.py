"""Level ``names``: a job built anew from columns on a list, with pseudonyms for names.

Nothing is copied but what this module names. Columns and attributes that a later version adds are
missing in its output until they are listed here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.sharing.obfuscation.private_job import BACKENDS, PHASES, class_word, kept_name
from nadi.sharing.obfuscation.secret_key import SecretKey
from nadi.systems.prices.traced_operations import distinct_values
from nadi.trace.arrays import Ints
from nadi.trace.attributes import CODES, Attributes, Part, combined
from nadi.trace.groups import RankGroups
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.protobuf_values import pack_list
from nadi.trace.schema import CLOCKS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Job, Provenance, Trace, on_host
from nadi.version import __version__

_KEPT = ("kind", "category", "parent", "duration", "exclusive", "bytes", "comm_type",
         "comm_bytes", "group", "src", "dst", "is_async", "flops")  # fmt: skip
# numbers that only have to be equal or different: renumbered from 0 in their order
_OF_TRACE = ("id", "thread", "device", "stream", "event", "rf_id", "external_id", "correlation",
             "sequence")  # fmt: skip
_OF_JOB = ("tag", "comms_id", "layer", "micro_batch")
_ALL_RANKS = ("", "0")  # names that stand for a group of all ranks
_SIZES = 4  # of a gemm_shape


class _JobNumbers(NamedTuple):
    """What is numbered over all ranks: the known values of columns, and names of groups."""

    values: Mapping[str, Ints]
    groups: Mapping[str, str]
    steps: Mapping[str, str]
    origin: int


def rename_job(job: Job, key: SecretKey) -> Job:
    """Return a job without names, free text, numbers of threads and processes, and operands.

    Times are shifted so that the job starts at 0. Sizes, durations and dependencies stay.

    - ``key``: With the salt of the job (:meth:`SecretKey.for_job`).
    - Returns: Ranks that shared a trace share one. O(nodes + distinct names).
    """
    different = list({id(trace): trace for trace in job.traces}.values())
    roles = list(job.rank_groups.members) if job.rank_groups else []
    numbers = _numbers(different, roles, job.origin)
    done = {id(trace): _renamed(trace, key, numbers) for trace in different}
    groups = job.rank_groups and RankGroups(
        {numbers.groups[role]: ranks for role, ranks in job.rank_groups.members.items()},
        job.rank_groups.world_size,
    )
    return Job(
        tuple(done[id(trace)] for trace in job.traces), job.matches, ISSUES.empty(), CLOCKS.empty(),
        groups,
    )  # fmt: skip


def names_of_job(job: Job, key: SecretKey) -> dict[str, str]:
    """Return the name behind each pseudonym that :func:`rename_job` gives, by pseudonym."""
    different = list({id(trace): trace for trace in job.traces}.values())
    found: dict[str, str] = {}
    for trace in different:
        known = _distinct(trace)
        named = _pseudonyms(known, key, _steps(different))
        found |= dict(zip(named, known["name"].to_list(), strict=True))
    return found


def _numbers(traces: Sequence[Trace], roles: Sequence[str], origin: int) -> _JobNumbers:
    values = {
        name: np.unique(np.concatenate([trace.column(name) for trace in traces]))
        for name in _OF_JOB
    }
    names = [*roles, *(name for trace in traces for name in trace.groups["name"].to_list())]
    groups: dict[str, str] = {}
    for name in dict.fromkeys(names):
        stays = name in _ALL_RANKS and not roles
        groups[name] = name if stays else str(1 + sum(1 for one in groups.values() if one > "0"))
    if roles:  # the name of a role is a name of a table, and its groups are numbered
        groups = {name: f"group{number}" for name, number in groups.items()}
    return _JobNumbers(values, groups, _steps(traces), origin)


def _steps(traces: Iterable[Trace]) -> dict[str, str]:
    """Return new names of the steps that are marked, numbered from 0."""
    marks = {
        name
        for trace in traces
        for name in trace.nodes["name"].unique().cast(pl.String).to_list()
        if kept_name(name, "annotation")
    }
    ordered = sorted(marks, key=lambda name: int(name.partition("#")[2]))
    return {name: f"ProfilerStep#{number}" for number, name in enumerate(ordered)}


def _renamed(trace: Trace, key: SecretKey, numbers: _JobNumbers) -> Trace:
    nodes, height = trace.nodes, trace.nodes.height
    start = trace.column("start")
    columns: dict[str, object] = {name: nodes[name] for name in _KEPT}
    columns |= {name: _dense(trace.column(name)) for name in _OF_TRACE}
    columns |= {name: _dense(trace.column(name), numbers.values[name]) for name in _OF_JOB}
    phases = nodes["phase"].cast(pl.String)
    columns |= {
        "name": _names(trace, key, numbers.steps),
        "start": np.where(start >= 0, start - numbers.origin, -1),
        "is_cpu": pl.Series(on_host(trace)),
        "phase": pl.select(
            pl.when(phases.is_in(PHASES)).then(phases).otherwise(pl.lit(""))
        ).to_series(),
    }
    backends = [one if one in BACKENDS else "" for one in trace.groups["backend"].to_list()]
    groups = GROUPS.build(trace.groups.height, {
        "name": [numbers.groups[name] for name in trace.groups["name"].to_list()],
        "ranks": trace.groups["ranks"], "backend": backends,
    })  # fmt: skip
    return Trace(
        nodes=NODES.build(height, columns),
        deps=trace.deps,
        groups=groups,
        issues=ISSUES.empty(),
        provenance=Provenance(__version__, ()),
        rank=trace.rank,
        world_size=trace.world_size,
        given_attributes=_attributes(trace),
    )


def _dense(values: Ints, known: Ints | None = None) -> Ints:
    """Return the place of each value among all, in ascending order; missing ones become -1."""
    known = np.unique(values) if known is None else known
    known = known[known >= 0]
    return np.where(values >= 0, np.searchsorted(known, values), -1)


def _distinct(trace: Trace) -> pl.DataFrame:
    """Return name, category, type of communication and class of operation, each set once."""
    return described_operations(trace).unique(maintain_order=True)


def described_operations(trace: Trace) -> pl.DataFrame:
    """Return name, category, type of communication and class of each node, as texts."""
    node, number, values = distinct_values(trace.attributes_without_operands, "op_class")
    code = np.zeros(trace.nodes.height, dtype=np.uint32)
    words = ["", *(value if value in OP_CLASSES else "" for value in values)]
    code[node] = number + 1
    return trace.nodes.select(
        pl.col("name").cast(pl.String), pl.col("category").cast(pl.String),
        pl.col("comm_type").cast(pl.String),
    ).with_columns(op_class=pl.Series(words, dtype=pl.String).gather(code))  # fmt: skip


def _pseudonyms(known: pl.DataFrame, key: SecretKey, steps: Mapping[str, str]) -> list[str]:
    named = []
    for name, category, comm_type, op_class in known.iter_rows():
        if kept_name(name, category):
            named.append(steps.get(name, name))
        else:
            word = class_word(name, category, comm_type, op_class)
            named.append(f"{word}_{key.word('name', name)}")
    return named


def _names(trace: Trace, key: SecretKey, steps: Mapping[str, str]) -> pl.Series:
    described = described_operations(trace)
    known = described.unique(maintain_order=True)
    new = known.with_columns(new=pl.Series(_pseudonyms(known, key, steps), dtype=pl.String))
    joined = described.join(new, on=described.columns, how="left", maintain_order="left")
    return joined["new"]


def _attributes(trace: Trace) -> Attributes:
    """Return the attributes on the list, if their values are words on it or numbers."""
    given = trace.attributes_without_operands
    parts = [_priorities(given)]
    for name in _TYPES:
        node, number, values = distinct_values(given, name)
        allowed = [_allowed(name, value) for value in values]
        kept = np.array([one is not None for one in allowed], dtype=np.bool_)[number]
        parts.append(spans(name, node[kept], number[kept], [one or b"" for one in allowed]))
    return combined([Part(part) for part in parts])


def _priorities(given: Attributes) -> Attributes:
    """Return the priorities of communication, which are numbers."""
    rows = given.rows_named("comm_priority")
    is_number = np.isin(given.type[rows], [CODES["int32"], CODES["int64"]])
    kept = np.zeros(len(given), dtype=np.bool_)
    kept[rows[is_number & (given.node[rows] >= 0)]] = True
    found = given.filtered(kept)
    return replace(found, names=("comm_priority",), name=np.zeros_like(found.name), buffers=())


def _allowed(name: str, value: Any) -> bytes | None:
    """Return the bytes of a value that may stay; None for any other."""
    if name == "op_class":
        return str(value).encode() if value in OP_CLASSES and value else None
    if name == "dtype":
        return str(value).encode() if value in DTYPE_NAMES and value else None
    is_list = isinstance(value, list) and len(value) > 0
    if name == "involved_dim" and is_list and all(type(one) is bool for one in value):
        return pack_list("bool_list", value)
    is_shape = is_list and len(value) == _SIZES and all(type(one) is int for one in value)
    return pack_list("int64_list", value) if name == "gemm_shape" and is_shape else None


_TYPES = {"op_class": "string", "dtype": "string", "gemm_shape": "int64_list",
          "involved_dim": "bool_list"}  # fmt: skip


def spans(name: str, node: Ints, number: Ints, values: Sequence[bytes]) -> Attributes:
    """Return attributes of one name, of which many nodes have the same value.

    - ``node``, ``number``: int64, shape (attributes,): row of ``nodes``, ascending, and position in
      ``values``.
    - ``values``: The bytes of each different value, as its type has them.
    """
    sizes = np.array([len(value) for value in values], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    order = np.argsort(node, kind="stable")
    node, number = node[order], number[order]
    return Attributes(
        node=node.astype(np.int32),
        name=np.zeros(node.size, dtype=np.int32),
        type=np.full(node.size, CODES[_TYPES[name]], dtype=np.uint8),
        value=first[number] if values else np.zeros(0, dtype=np.int64),
        length=(sizes[number] if values else sizes).astype(np.int32),
        names=(name,),
        buffers=(np.frombuffer(b"".join(values), dtype=np.uint8).copy(),),
    )
