"""The output of nccl-tests: a table of sizes and times of one collective, as it is printed.

``all_reduce_perf`` and its sisters print the ranks, one line each, and a row per size. Newer ones
say which collective it is; otherwise the ratio of bus bandwidth to algorithm bandwidth does, or
the name of the file.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

import msgspec

from nadi.errors import FormatError

__all__ = ["MeasuredCollective", "parse_nccl_tests"]

_NAMES = {
    "all_reduce": ("all_reduce", "allreduce"),
    "all_gather": ("all_gather", "allgather"),
    "reduce_scatter": ("reduce_scatter", "reducescatter"),
    "all_to_all": ("alltoall", "all_to_all"),
    "broadcast": ("broadcast",),
    "reduce": ("reduce",),
}
_RANK = re.compile(r"#\s+Rank\s+\d+\s.*\bon\s+(\S+)\s+device\b")
_STARTED = re.compile(r"#\s*Collective test starting:\s*(\w+?)_perf")
_NEAR = 0.01
_WHOLE = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_MOST_BYTES = 1 << 62
_REMEDY = "give the output of nccl-tests as it is printed, lines with # included"


class MeasuredCollective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured times of one collective among some ranks.

    Attributes
    ----------
    collective
        Its type.
    ranks, nodes
        How many took part, on how many hosts.
    sizes
        Bytes as nccl-tests counts them, ascending and distinct: of an all-gather those that are
        gathered.
    times
        Of each, in ns, out of place.
    name
        Of the file.
    """

    collective: str
    ranks: int
    nodes: int
    sizes: tuple[int, ...]
    times: tuple[float, ...]
    name: str = ""


def parse_nccl_tests(content: bytes, name: str) -> MeasuredCollective:
    """Read the output of one program of nccl-tests or rccl-tests.

    Rows of 0 bytes, which it prints where a size does not divide by the ranks, are left out; of
    several rows of one size the mean counts. O(lines).

    Raises
    ------
    FormatError
        If there is no table, a row cannot be read, or the collective is not known.
    """
    hosts: list[str] = []
    columns: _Columns | None = None
    rows: list[_Row] = []
    started = ""
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        # launchers may put a rank before each line
        text = re.sub(r"^\s*(\[[\d,]+\](<\w+>)?:?|\d+:)", "", line).strip()
        if found := _RANK.search(text):
            hosts.append(found[1])
        elif found := _STARTED.search(text):
            started = found[1]
        elif text.startswith("#") and "size" in text.split() and "count" in text.split():
            columns = _columns(text, f"{name}, line {number}")
        elif columns and text[:1].isdigit():
            rows.append(_row(text, columns, f"{name}, line {number}"))
    if not rows:
        _refuse(name, "it has no row of sizes and times")
    if not hosts:
        _refuse(name, "no line names a rank (#  Rank  0 ... on HOST device 0)")
    return _table(_collective(started, name, rows, len(hosts)), hosts, rows, name)


class _Columns(NamedTuple):
    """Where a row has what; ``operation`` is -1 where no reduction is stated."""

    size: int
    time: int
    algorithm: int
    bus: int
    operation: int


class _Row(NamedTuple):
    """A row: bytes, time in us, bandwidths in GB/s."""

    size: int
    time: float
    algorithm: float
    bus: float
    reduces: bool


def _columns(text: str, where: str) -> _Columns:
    """Find the columns that a line of headings announces."""
    names = text.lstrip("#").split()
    for name in ("size", "time", "algbw", "busbw"):
        if name not in names:
            _refuse(where, f"no column is called {name}")
    operation = names.index("redop") if "redop" in names else -1
    size, time, algorithm, bus = map(names.index, ("size", "time", "algbw", "busbw"))
    return _Columns(size, time, algorithm, bus, operation)


def _row(text: str, columns: _Columns, where: str) -> _Row:
    fields = text.split()
    if len(fields) <= max(columns):
        _refuse(where, f"a row of {len(fields)} fields, where {max(columns) + 1} are announced")
    size, *numbers = (fields[at] for at in columns[:4])
    if not _WHOLE.fullmatch(size) or int(size) > _MOST_BYTES:
        _refuse(where, f"{size[:40]!r} is no number of bytes")
    for number in numbers:
        if not _NUMBER.fullmatch(number):
            _refuse(where, f"{number[:40]!r} is not a number")
    reduces = columns.operation >= 0 and fields[columns.operation] not in ("none", "N/A")
    time, algorithm, bus = map(float, numbers)
    return _Row(int(size), time, algorithm, bus, reduces)


def _collective(started: str, name: str, rows: list[_Row], ranks: int) -> str:
    """Tell which collective it is: as it says, by its bandwidths, or by the file's name."""
    found = (
        _named(started) or _by_bandwidths(rows, ranks) or _named(name.rpartition("/")[2].lower())
    )
    if not found:
        names = ", ".join(spellings[0] for spellings in _NAMES.values())
        _refuse(
            name, "it does not say which collective it is",
            f"put its name into that of the file: {names}",
        )  # fmt: skip
    return found


def _named(text: str) -> str:
    """Return the collective that a text names; empty if it names none."""
    for collective, spellings in _NAMES.items():  # reduce is a part of other names, and last
        if any(spelling in text for spelling in spellings):
            return collective
    return ""


def _by_bandwidths(rows: list[_Row], ranks: int) -> str:
    """Return what the ratio of both bandwidths says; empty if several have this ratio."""
    largest = max(rows, key=lambda row: row.algorithm)
    if ranks < 3 or largest.algorithm < 1:  # two digits follow the point
        return ""
    ratio, share = largest.bus / largest.algorithm, (ranks - 1) / ranks
    reduces = largest.reduces
    if reduces and abs(ratio / (2 * share) - 1) < _NEAR:
        return "all_reduce"
    if reduces and abs(ratio / share - 1) < _NEAR and share < 1 - 2 * _NEAR:
        return "reduce_scatter"
    if abs(ratio - 1) < _NEAR and share < 1 - 2 * _NEAR:
        return "reduce" if reduces else "broadcast"
    return ""


def _table(collective: str, hosts: list[str], rows: list[_Row], name: str) -> MeasuredCollective:
    times: dict[int, list[float]] = {}
    for row in rows:
        if row.size > 0 and row.time > 0:
            times.setdefault(row.size, []).append(row.time * 1000)
    if not times:
        _refuse(name, "all of its rows are of 0 bytes")
    sizes = sorted(times)
    means = (sum(times[size]) / len(times[size]) for size in sizes)
    return MeasuredCollective(
        collective, len(hosts), len(set(hosts)), tuple(sizes), tuple(means), name
    )


def _refuse(where: str, what: str, remedy: str = _REMEDY) -> NoReturn:
    raise FormatError(where, what, remedy)
