"""The output of nccl-tests: a table of sizes and times of one collective, as it is printed.

``all_reduce_perf`` and its sisters print the ranks, one line each, and a row per size. Newer ones
say which collective it is; otherwise the ratio of bus bandwidth to algorithm bandwidth does, or
the name of the file.
"""

from __future__ import annotations

import re
from typing import NoReturn

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
    columns: list[str] = []
    rows: list[list[str]] = []
    started = ""
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        # launchers may put a rank before each line
        text = re.sub(r"^\s*(\[[\d,]+\](<\w+>)?:?|\d+:)", "", line).strip()
        if found := _RANK.search(text):
            hosts.append(found[1])
        elif found := _STARTED.search(text):
            started = found[1]
        elif text.startswith("#") and "size" in text.split() and "count" in text.split():
            columns = text.lstrip("#").split()
        elif columns and text[:1].isdigit():
            rows.append(_row(text, columns, f"{name}, line {number}"))
    if not rows:
        _refuse(name, "it has no row of sizes and times")
    if not hosts:
        _refuse(name, "no line names a rank (#  Rank  0 ... on HOST device 0)")
    collective = _collective(started, name, rows, columns, len(hosts))
    return _table(collective, hosts, rows, columns, name)


def _row(text: str, columns: list[str], where: str) -> list[str]:
    fields = text.split()
    if len(fields) < columns.index("busbw") + 1:
        _refuse(where, f"a row of {len(fields)} fields, where {len(columns)} are announced")
    for at in (columns.index("size"), columns.index("time")):
        if not re.fullmatch(r"\d+(\.\d+)?", fields[at]):
            _refuse(where, f"{fields[at]!r} is not a number")
    return fields


def _collective(
    started: str, name: str, rows: list[list[str]], columns: list[str], ranks: int
) -> str:
    """Tell which collective it is: as it says, by its bandwidths, or by the file's name."""
    found = (
        _named(started)
        or _by_bandwidths(rows, columns, ranks)
        or _named(name.rpartition("/")[2].lower())
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


def _by_bandwidths(rows: list[list[str]], columns: list[str], ranks: int) -> str:
    """Return what the ratio of both bandwidths says; empty if several have this ratio."""
    algorithm, bus = columns.index("algbw"), columns.index("busbw")
    largest = max(rows, key=lambda row: float(row[algorithm]))
    if ranks < 3 or float(largest[algorithm]) < 1:  # two digits follow the point
        return ""
    ratio, share = float(largest[bus]) / float(largest[algorithm]), (ranks - 1) / ranks
    reduces = "redop" in columns and largest[columns.index("redop")] not in ("none", "N/A")
    if reduces and abs(ratio / (2 * share) - 1) < _NEAR:
        return "all_reduce"
    if reduces and abs(ratio / share - 1) < _NEAR and share < 1 - 2 * _NEAR:
        return "reduce_scatter"
    if abs(ratio - 1) < _NEAR and share < 1 - 2 * _NEAR:
        return "reduce" if reduces else "broadcast"
    return ""


def _table(
    collective: str, hosts: list[str], rows: list[list[str]], columns: list[str], name: str
) -> MeasuredCollective:
    size_at, time_at = columns.index("size"), columns.index("time")
    times: dict[int, list[float]] = {}
    for row in rows:
        size, time = int(row[size_at]), float(row[time_at])
        if size > 0 and time > 0:
            times.setdefault(size, []).append(time * 1000)
    if not times:
        _refuse(name, "all of its rows are of 0 bytes")
    sizes = sorted(times)
    means = (sum(times[size]) / len(times[size]) for size in sizes)
    return MeasuredCollective(
        collective, len(hosts), len(set(hosts)), tuple(sizes), tuple(means), name
    )


def _refuse(where: str, what: str, remedy: str = _REMEDY) -> NoReturn:
    raise FormatError(where, what, remedy)
