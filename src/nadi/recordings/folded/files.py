"""Write and read folded jobs, as a zip of Arrow files.

``fold.json`` comes first: the version of the format, and what no table holds. Each class of ranks
has tables of its own. A change that an older reader would misread raises the version.
"""

import io
import zipfile
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError, NadiError, UsageError
from nadi.files.files import check_target, locate, read_head, write_pieces
from nadi.files.native.nadi_file import (
    DAMAGED,
    FOLD,
    add_member,
    add_table,
    attribute_tables,
    attributes_of_tables,
    first_line,
    holds_fold,
    open_members,
    read_arrow,
    read_header,
    without_missing,
)
from nadi.recordings.folded.folded_job import FoldedJob, folded_job
from nadi.recordings.folded.folded_trace import FoldedTrace
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups
from nadi.trace.operands import TensorType
from nadi.trace.operations import ITEMSIZE
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES, TENSOR_ROLES, Table
from nadi.trace.trace import Provenance, Trace

_VERSION = 1
_MOST = 1 << 28  # rows of an unfolded trace, and ranks
_INT = pl.Int64()
_LOOPS = dict.fromkeys(("first", "size", "count", "depth"), _INT)
_DEPS = {
    "row": _INT, "src": _INT, "kind": DEPS.dtypes["kind"], "inferred": pl.Boolean(), "block": _INT,
}  # fmt: skip
_OPERANDS = {
    "row": _INT, "is_output": pl.Boolean(), "position": _INT, "tensor_id": _INT,
    "storage_id": _INT, "offset": _INT, "kind": _INT, "role": _INT,
}  # fmt: skip
_STEPS = dict.fromkeys(("value", "depth", "step"), _INT)
_TIMES = dict.fromkeys(("typical", "low", "high"), _INT)
_RANKS = dict.fromkeys(("class", "count"), _INT)
_ROLE = {"ranks": pl.List(_INT)}
_OWN: dict[str, dict[str, Any]] = {
    "loops": _LOOPS, "deps": _DEPS, "operands": _OPERANDS, "steps": _STEPS, "times": _TIMES,
}  # fmt: skip
_DECLARED = {"nodes": NODES, "groups": GROUPS, "issues": ISSUES}
_Rank = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]


class _Class(msgspec.Struct):
    heights: dict[str, Annotated[int, msgspec.Meta(ge=0, le=_MOST)]]
    types: list[tuple[list[int], str]]
    device: str
    names: list[str]  # of attributes
    nadi_version: str
    rank: _Rank
    world_size: _Rank
    process: int


class _Header(msgspec.Struct):
    version: int
    classes: list[_Class]
    roles: list[str] | None
    format: str = "nadi fold"


def check_folded_output(path: Path | str, source: Path | str | None, *, overwrite: bool) -> None:
    """Check that a folded job may be written, before it is made from ``source``, if from a file.

    - Raises UsageError if its name does not end in ``.nadi``, or it is the job that is folded.
    - Raises InputError if it exists already and ``overwrite`` is not given, or cannot be written.
    """
    place = locate(path)
    if not place.name.endswith(".nadi"):
        raise UsageError(str(path), "a folded job is one file of Nadi's own", "end it in .nadi")
    check_target(place, [] if source is None else [locate(source)], overwrite=overwrite)


def write_folded(job: FoldedJob, path: Path | str) -> int:
    """Write a folded job; equal jobs give equal bytes.

    Returns
    -------
    int
        Bytes of the file.

    Raises
    ------
    InputError
        If it cannot be written; an existing file is unchanged.
    """
    groups = job.rank_groups
    header = _Header(
        _VERSION, [_header_of(fold) for fold in job.folds],
        None if groups is None else list(groups.members),
    )  # fmt: skip
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as members:
        add_member(members, FOLD, msgspec.json.format(msgspec.json.encode(header), indent=1))
        add_table(members, "ranks", _runs(job.of))
        add_table(members, "issues", job.issues)
        for number, ranks in enumerate(groups.members.values() if groups else ()):
            frame = pl.DataFrame({"ranks": ranks.tolist()}, schema=_ROLE)
            add_table(members, f"roles/{number}", frame)
        for number, fold in enumerate(job.folds):
            for name, table in _DECLARED.items():
                frame = without_missing(getattr(fold, name), table)
                add_table(members, f"classes/{number}/{name}", frame)
            for name in _OWN:
                add_table(members, f"classes/{number}/{name}", getattr(fold, name))
            columns, pieces = attribute_tables(fold.attributes)
            add_table(members, f"classes/{number}/attributes", columns)
            add_table(members, f"classes/{number}/bytes", pieces)
    content = file.getvalue()
    write_pieces(locate(path), [content])
    return len(content)


def _header_of(fold: FoldedTrace) -> _Class:
    return _Class(
        {name: getattr(fold, name).height for name in _DECLARED},
        [(list(one.shape), one.dtype) for one in fold.types], fold.device,
        list(fold.attributes.names), fold.provenance.nadi_version, fold.rank, fold.world_size,
        fold.process,
    )  # fmt: skip


def _runs(of: Ints) -> pl.DataFrame:
    """Return the classes of ranks, those of equal ones that follow each other once."""
    first = np.flatnonzero(np.diff(of, prepend=-1))
    return pl.DataFrame(
        {"class": of[first], "count": np.diff(np.append(first, of.size))}, schema=_RANKS
    )


def read_folded(path: Path | str) -> FoldedJob:
    """Read a job that ``nadi fold`` or :func:`write_folded` wrote. O(nodes of all classes).

    Raises
    ------
    FormatError
        If the file is not a folded job, is damaged, or of a newer version.
    InputError
        If it cannot be read.
    """
    place = locate(path)
    if not holds_fold(read_head(place)):
        raise FormatError(str(path), "not a folded job", "pass a file that nadi fold wrote")
    with open_members(place) as members:
        header = read_header(place, members, FOLD, _Header, _VERSION, "fold the job again")
        ranks = _checked(place, "ranks", read_arrow(place, members, "ranks.arrow"), _RANKS)
        issues = _declared(place, ISSUES, read_arrow(place, members, "issues.arrow"))
        roles = [
            _checked(place, "roles", read_arrow(place, members, f"roles/{k}.arrow"), _ROLE)
            for k in range(len(header.roles or ()))
        ]
        folds = [_read_class(place, members, k, one) for k, one in enumerate(header.classes)]
    count, number = ranks["count"].to_numpy(), ranks["class"].to_numpy()
    if not count.size or count.min() < 1 or count.max() > _MOST or count.sum() > _MOST:
        _damaged(place, "table ranks: a class has no ranks, or too many")
    if set(number.tolist()) != set(range(len(folds))):
        _damaged(place, "table ranks: it names other classes than there are")
    of = np.repeat(number, count)
    try:
        groups = _groups(header.roles, roles, of.size)
        job = folded_job(folds, of, groups, issues)
    except (NadiError, ValueError, IndexError, OverflowError, pl.exceptions.PolarsError) as error:
        _damaged(place, first_line(error))
    _check_job(place, job)
    return job


def _groups(names: list[str] | None, members: list[pl.DataFrame], size: int) -> RankGroups | None:
    if names is None:
        return None
    listed = (np.array(one["ranks"].to_list(), dtype=np.int64) for one in members)
    return RankGroups(
        {name: ranks.reshape(len(ranks), -1) for name, ranks in zip(names, listed, strict=True)},
        size,
    )


def _read_class(path: Path, members: zipfile.ZipFile, number: int, header: _Class) -> FoldedTrace:
    def read(name: str) -> pl.DataFrame:
        return read_arrow(path, members, f"classes/{number}/{name}.arrow")

    try:
        tables = {
            name: table.build(header.heights[name], read(name).to_dict())
            for name, table in _DECLARED.items()
        }
    except (ValueError, TypeError, KeyError, OverflowError, pl.exceptions.PolarsError) as error:
        _damaged(path, f"class {number}: {first_line(error)}")
    own = {name: _checked(path, name, read(name), dtypes) for name, dtypes in _OWN.items()}
    for name, table in _DECLARED.items():
        _declared(path, table, tables[name])
    fold = FoldedTrace(
        **tables, **own,
        types=tuple(TensorType(tuple(shape), dtype) for shape, dtype in header.types),
        device=header.device,
        attributes=attributes_of_tables(
            path, read("attributes"), read("bytes"), header.names, tables["nodes"].height
        ),
        provenance=Provenance(header.nadi_version, ()), rank=header.rank,
        world_size=header.world_size, process=header.process,
    )  # fmt: skip
    _check_class(path, fold)
    return fold


def _check_class(path: Path, fold: FoldedTrace) -> None:
    """Reject tables that refer to what is not there, or that would become too large."""
    kept = fold.nodes.height
    for name in ("deps", "operands"):
        row = getattr(fold, name)["row"].to_numpy()
        if row.size and (row[0] < 0 or row[-1] >= kept or (np.diff(row) < 0).any()):
            _damaged(path, f"table {name}: rows are not those of nodes in order")
    kind = fold.operands["kind"].to_numpy()
    if kind.size and (kind.min() < 0 or kind.max() >= len(fold.types)):
        _damaged(path, "table operands: a type does not exist")
    role = fold.operands["role"].to_numpy()
    if role.size and (role.min() < -1 or role.max() >= len(TENSOR_ROLES)):
        _damaged(path, "table operands: a role does not exist")
    if any(one.dtype not in ITEMSIZE for one in fold.types):
        _damaged(path, "a tensor has a type that is not known")
    size = _unfolded_rows(fold.loops, kept)
    if size < 0:
        _damaged(path, "table loops: repeats do not lie one inside the other")
    if size > _MOST:
        _damaged(path, f"it would have {size:,} nodes on a rank")
    if fold.times.height not in (kept, size):
        _damaged(path, "table times: not a row for each node")
    value = fold.steps["value"].to_numpy()
    if value.size and (value.min() < 0 or value.max() >= fold.values.size):
        _damaged(path, "table steps: a value does not exist")


def _unfolded_rows(loops: pl.DataFrame, kept: int) -> int:
    """Return the number of rows that kept rows become; -1 if repeats are not nested."""
    turns = np.ones(kept + 1, dtype=np.float64)
    ends = [kept]
    at = 0
    for row in loops.iter_rows(named=True):
        first, size, count, depth = (row[name] for name in _LOOPS)
        if not (at <= first and size > 0 and 2 <= count <= _MOST and 0 <= depth < len(ends)):
            return -1
        del ends[depth + 1 :]
        if first + size > ends[-1] or (len(ends) > 1 and depth != len(ends) - 1):
            return -1
        ends.append(first + size)
        at = first
        turns[first : first + size] *= count
    total = turns[:kept].sum()
    return int(total) if total < 2.0**62 else 1 << 62


def _check_job(path: Path, job: FoldedJob) -> None:
    """Reject whole traces that refer to rows, groups or ranks that do not exist."""
    for trace in dict.fromkeys(job.traces):
        size = trace.nodes.height
        for column, end in (("src", size), ("dst", size)):
            row = trace.deps[column].to_numpy()
            if row.size and (row.min() < 0 or row.max() >= end):
                _damaged(path, f"table deps: {column} is not a row")
        parent = trace.column("parent")
        if ((parent < -1) | (parent >= np.arange(size))).any():
            _damaged(path, "table nodes: a parent is not an earlier row")
        group = trace.column("group")
        if group.size and (group.min() < -1 or group.max() >= trace.groups.height):
            _damaged(path, "table nodes: a group does not exist")
        if job.rank_groups is not None:
            _check_roles(path, trace, job.rank_groups)


def _check_roles(path: Path, trace: Trace, groups: RankGroups) -> None:
    group = trace.column("group")
    for row, role in enumerate(trace.groups["name"].to_list()):
        if role not in groups.members:
            _damaged(path, f"a trace names role {role!r}, which no ranks form")
        for column in ("src", "dst"):
            peer = trace.column(column)[group == row]
            if peer.max(initial=-1) >= groups.members[role].shape[1]:
                _damaged(path, f"a message goes beyond its group of role {role!r}")


def _checked(path: Path, name: str, frame: pl.DataFrame, dtypes: dict[str, Any]) -> pl.DataFrame:
    if dict(frame.schema) != dtypes or any(frame.null_count().row(0)):
        _damaged(path, f"table {name}: unexpected columns {first_line(ValueError(frame.schema))}")
    return frame


def _declared(path: Path, table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    try:
        table.check(frame)
    except ValueError as error:
        _damaged(path, first_line(error))
    return frame


def _damaged(path: Path, what: str) -> NoReturn:
    raise FormatError(str(path), what, DAMAGED) from None
