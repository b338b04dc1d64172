"""Many small .et files at once, such as the ranks of a job to simulate.

For a file of some hundred nodes, building the tables takes ten times as long as decoding the
bytes, because polars allocates fifty columns whatever their length. This module builds one set of
tables for all files, and each trace is a slice of it. It handles only files without issues. If any
file has an issue, it reads none, and :mod:`nadi.files.chakra.et_decode` reads and reports each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.files.chakra.et_decode import (
    WANTED,
    all_attributes,
    groups_of,
    message_attributes,
    node_table,
    number_of,
    repeated_rows,
    stated_version,
    written_by_nadi,
)
from nadi.files.chakra.et_nodes import DecodedNodes, decode_messages
from nadi.files.files import RawFile
from nadi.files.node_ids import NodeRows
from nadi.trace.arrays import Ints, Ints32
from nadi.trace.attributes import LazyAttributes
from nadi.trace.issues import IssueLog
from nadi.trace.protobuf_values import read_varint
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace
from nadi.trace.validate import cycle_row
from nadi.version import __version__

_Words = dict[bytes, tuple[dict[str, Any], str]]
_LARGEST_KEY = 2**62


@dataclass(frozen=True, eq=False)
class _File:
    """One file: its nodes as arrays, and its metadata."""

    raw: RawFile
    decoded: DecodedNodes
    stated: dict[str, Any]
    version: str

    @cached_property
    def size(self) -> int:
        return self.decoded.total("nodes")


@dataclass(frozen=True, eq=False)
class _Together:
    """The nodes of all files, one file after the other."""

    decoded: DecodedNodes  # the nodes of all files
    first: Ints  # int64, shape (files + 1,): where the nodes of each file begin
    file: Ints  # int64, shape (nodes,): the file of each node
    ids: Ints
    span: int
    rows: NodeRows  # maps a file and an id to a row; the key of both is file * span + id


def decode_ranks(raws: Sequence[RawFile]) -> list[Trace] | None:
    """Read Chakra execution traces.

    - Returns list of Trace or None: The same as :func:`nadi.files.chakra.et_decode.decode` of each;
      None if any of them has an issue or an error.
    """
    words: _Words = {}
    files = []
    try:
        for raw in raws:
            file = _read(raw, words)
            if file is None:
                return None
            files.append(file)
        together = _put_together(files)
        return None if together is None else _traces(files, together)
    except InputError:  # which names the wrong file, or another than the first that is damaged
        return None


def _read(raw: RawFile, words: _Words) -> _File | None:
    if not raw.content.size:
        return None
    decoded = decode_messages(raw.name, raw.content, WANTED)
    if decoded.total("unknown") or decoded.total("unknown_inside"):
        return None
    length, begin = read_varint(raw.content[:10].tobytes(), 0)
    metadata = raw.content[: begin + length]
    content = metadata.tobytes()  # the same for all ranks of most jobs
    if content not in words:
        attributes = message_attributes(metadata, 0, decoded.total("attributes"))
        words[content] = attributes.of(-1), f"Chakra ET {stated_version(attributes)}".rstrip()
    return _File(raw, decoded, *words[content])


def _put_together(files: list[_File]) -> _Together | None:
    """Concatenate the nodes of all files, if each id occurs once in its file."""
    sizes = np.array([file.size for file in files], dtype=np.int64)
    decoded = DecodedNodes([part for one in files for part in one.decoded.parts], WANTED)
    ids = decoded.column("id")
    if not ids.size or ids.min() < 0:
        return None
    span = int(ids.max()) + 1
    if span > _LARGEST_KEY // len(files):
        return None
    file = np.repeat(np.arange(len(files)), sizes)
    rows = NodeRows(ids + file * span)
    if rows.repeated >= 0 or not _is_stated_alike(decoded, file):
        return None
    return _Together(decoded, np.append(0, np.cumsum(sizes)), file, ids, span, rows)


def _is_stated_alike(decoded: DecodedNodes, file: Ints) -> bool:
    """Return whether all files or none are written by Nadi, so that one rule serves all."""
    states = np.bincount(file[written_by_nadi(decoded)], minlength=int(file[-1]) + 1) > 0
    return bool(states.all()) or not states.any()


def _dependencies(together: _Together) -> tuple[pl.DataFrame, Ints] | None:
    """Return the dependencies of all files, and where those of each file begin."""
    everything: list[tuple[str, Ints, Ints]] = []
    for kind in ("data", "ctrl"):
        count, ids = together.decoded.dependencies(kind)
        dst = np.repeat(np.arange(together.ids.size), count)
        if ids.size and (ids.min() < 0 or ids.max() >= together.span):
            return None
        src = together.rows.find(ids + together.file[dst] * together.span)
        if (src < 0).any() or (src == dst).any():
            return None
        if repeated_rows(np.repeat(count > 1, count), src, dst).size:
            return None
        everything.append((kind, src, dst))
    src, dst = (np.concatenate([one[k] for one in everything]) for k in (1, 2))
    if cycle_row(together.ids.size, src, dst) >= 0:
        return None
    file = together.file[dst]
    order = np.argsort(file, kind="stable")
    kinds = pl.Series([kind for kind, _, _ in everything], dtype=DEPS.dtypes["kind"])
    which = np.repeat(np.arange(len(everything), dtype=np.uint32), [o[1].size for o in everything])
    begin = together.first[file]
    columns = {
        "src": (src - begin)[order],
        "dst": (dst - begin)[order],
        "kind": kinds.gather(which[order]),
    }
    counts = np.bincount(file, minlength=together.first.size - 1)
    return DEPS.build(src.size, columns), np.append(0, np.cumsum(counts))


def _groups(files: list[_File]) -> tuple[Ints, pl.DataFrame, Ints]:
    """Return the group of each node, those of all files, and where those of each file begin."""
    of_nodes, first = [], [0]
    columns: dict[str, list[Any]] = {name: [] for name in GROUPS.dtypes}
    for file in files:
        group, given = groups_of(*file.decoded.text("pg_name"), file.stated)
        of_nodes.append(group)
        for name, values in given.items():
            columns[name] += values
        first.append(len(columns["name"]))
    size = first[-1]
    return np.concatenate(of_nodes), GROUPS.build(size, columns), np.array(first)


def _traces(files: list[_File], together: _Together) -> list[Trace] | None:
    """Slice the tables of all files into one set for each."""
    dependencies = _dependencies(together)
    if dependencies is None:
        return None
    deps, first_dep = dependencies
    group, groups, first_group = _groups(files)
    log = IssueLog()
    nodes = node_table("", together.decoded, together.ids, group, log)
    issues = log.table()
    if issues.height:
        return None
    for table, frame in ((NODES, nodes), (DEPS, deps), (GROUPS, groups), (ISSUES, issues)):
        table.check(frame)
    first = together.first
    is_cpu = together.decoded.numbers().get("is_cpu_op", np.full(first[-1], -1))
    traces = []
    for k, file in enumerate(files):
        traces.append(Trace.of_checked(
            nodes=nodes.slice(first[k], file.size),
            deps=deps.slice(first_dep[k], first_dep[k + 1] - first_dep[k]),
            groups=groups.slice(first_group[k], first_group[k + 1] - first_group[k]),
            issues=issues,
            provenance=Provenance(__version__, (file.raw.source(file.version),)),
            rank=number_of(file.stated, "rank"),
            world_size=number_of(file.stated, "world_size"),
            process=number_of(
                file.stated, "process" if "process" in file.stated else "pid"
            ),
            given_attributes=_attributes(file, is_cpu[first[k] : first[k + 1]]),
        ))  # fmt: skip
    return traces


def _attributes(file: _File, is_cpu: Ints) -> LazyAttributes:
    """Return the attributes of a file, with the lookups that a simulation needs precomputed."""
    content, size, at_most = file.raw.content, file.size, file.decoded.total("attributes")
    known = np.flatnonzero(is_cpu >= 0).astype(np.int32)

    def find_nodes(name: str) -> Ints32 | None:
        # it may stand in other texts too: at most so many are names
        count = content.tobytes().count(name.encode())
        if not count:
            return known[:0]
        return known if name == "is_cpu_op" and count == known.size else None

    return LazyAttributes(lambda: all_attributes(content, size, at_most, ()), find_nodes)
