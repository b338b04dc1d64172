"""The output of nccl-tests: a table of sizes and times of one collective, as it is printed.

``all_reduce_perf`` and its sisters print the ranks, one line each, and a row per size. Newer ones
say which collective it is; otherwise the ratio of bus bandwidth to algorithm bandwidth does, or
the name of the file.

NCCL's own log: the graphs that its topology search found.

It is what a program prints to standard output with ``NCCL_DEBUG=INFO`` and
``NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING``, of one rank or of several.

How nccl-tests counts the bytes of a collective, and what its bus bandwidth is.

Times of collectives from measured tables, interpolated in three regimes.

Up to some size all collectives take as long: latency. From some size on each byte takes as long:
bandwidth. Between them lies the transition. Measured times that shrink with more bytes are noise,
and are levelled first.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.systems.nccl.nccl_cost_table import PATH_TYPES, ChannelGraph
from nadi.trace.arrays import Floats, Ints
from nadi.trace.collectives import COLLECTIVES

_NAMES = {
    "all_reduce": ("all_reduce", "allreduce"),
    "all_gather": ("all_gather", "allgather"),
    "reduce_scatter": ("reduce_scatter", "reducescatter"),
    "all_to_all": ("alltoall", "all_to_all"),
    "broadcast": ("broadcast",),
    "reduce": ("reduce",),
}
_RANK = re.compile(r"#\s+Rank\s+\d+\s[^#]*\bon\s+(\S+)\s+device\b")
_STARTED = re.compile(r"#\s*Collective test starting:\s*(\w+?)_perf")
_NEAR = 0.01
_WHOLE = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_MOST_BYTES = 1 << 62
_REMEDY = "give the output of nccl-tests as it is printed, lines with # included"


class MeasuredCollective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured times of one collective among some ranks."""

    collective: str  # its type
    # ranks, nodes: how many took part, on how many hosts
    ranks: int
    nodes: int
    # bytes as nccl-tests counts them, ascending and distinct: of an all-gather those that are
    # gathered
    sizes: tuple[int, ...]
    times: tuple[float, ...]  # of each, in ns, out of place
    name: str = ""  # of the file


def parse_nccl_tests(content: bytes, name: str) -> MeasuredCollective:
    """Read the output of one program of nccl-tests or rccl-tests.

    Rows of 0 bytes, which it prints where a size does not divide by the ranks, are left out; of
    several rows of one size the mean counts. O(lines).

    - Raises FormatError if there is no table, a row cannot be read, or the collective is not known.
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
        collective_named(started)
        or _by_bandwidths(rows, ranks)
        or collective_named(name.rpartition("/")[2].lower())
    )
    if not found:
        names = ", ".join(spellings[0] for spellings in _NAMES.values())
        _refuse(
            name, "it does not say which collective it is",
            f"put its name into that of the file: {names}",
        )  # fmt: skip
    return found


def collective_named(text: str) -> str:
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


_INFO = re.compile(r"^(.*?)\bNCCL INFO (.*)$")
_VERSION = re.compile(r"\bNCCL version ([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})")
_RANKS = re.compile(r"\bnRanks ([0-9]{1,9}) nNodes ([0-9]{1,9})\b")
_BEGIN = re.compile(r"Pattern \d+, crossNic")
_GRAPH = re.compile(
    r"Pattern ([0-9]{1,3}), crossNic [0-9]+, nChannels ([0-9]{1,3}), "
    r"bw ([0-9]{1,6}(?:\.[0-9]+)?)/([0-9]{1,6}(?:\.[0-9]+)?), "
    r"type (\w+)/(\w+), sameChannels ([0-9])"
)
# by pattern: 1 to 3 are trees, and the second one that a rank prints is that of CollNet's chains
_KEYS = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet_direct"}
_REMEDY_OF_LOG = (
    "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING and give what it prints"
)


class NcclLog(NamedTuple):
    """What the log of a communicator says."""

    version: str  # of NCCL; empty if it is not in the log
    # ranks, nodes: of the communicator; 0 if they are not in the log
    ranks: int
    nodes: int
    # by name: ring, tree, nvls, and where switches reduce collnet_direct and collnet_chain
    graphs: dict[str, ChannelGraph]


def parse_nccl_log(content: bytes, name: str) -> NcclLog:
    """Read a log; of several ranks the least of each figure counts, as NCCL takes it. O(lines).

    Only the first communicator of each process is read.

    - Raises FormatError if no line describes the graph of a ring, or one describes a graph in other
      words.
    """
    version, ranks, nodes = "", 0, 0
    of_ranks: dict[tuple[str, str], ChannelGraph] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if not version and (found := _VERSION.search(line)):
            version = found[1]
        info = _INFO.match(line)
        if info is None:
            continue
        if not ranks and (found := _RANKS.search(info[2])):
            ranks, nodes = int(found[1]), int(found[2])
        if not _BEGIN.search(info[2]):
            continue
        graph = _graph(info[2], f"{name}, line {number}")
        key = _KEYS.get(graph.pattern)
        if key:
            if key == "tree" and (info[1], key) in of_ranks:
                key = "collnet_chain"
            of_ranks.setdefault((info[1], key), graph)
    graphs: dict[str, ChannelGraph] = {}
    for (_, key), graph in of_ranks.items():
        graphs[key] = _least(graphs[key], graph) if key in graphs else graph
    graphs = {key: graph for key, graph in graphs.items() if _is_found(graph)}
    if "ring" not in graphs:
        what = "no line describes a ring (Pattern 4, crossNic ...) with channels and bandwidths"
        raise FormatError(name, what, _REMEDY_OF_LOG)
    return NcclLog(version, ranks, nodes, graphs)


def _graph(text: str, where: str) -> ChannelGraph:
    found = _GRAPH.search(text)
    if found is None:
        raise FormatError(where, "it describes a graph in words that are not known", _REMEDY_OF_LOG)
    for path_type in (found[5], found[6]):
        if path_type not in PATH_TYPES:
            raise FormatError(
                where,
                f"{path_type[:40]} is not a type of path",
                f"known are {', '.join(PATH_TYPES)}",
            )
    return ChannelGraph(
        pattern=int(found[1]),
        channels=int(found[2]),
        bandwidth_intra=float(found[3]),
        bandwidth_inter=float(found[4]),
        type_intra=found[5],
        type_inter=found[6],
        same_channels=found[7] == "1",
    )


def _is_found(graph: ChannelGraph) -> bool:
    """Return whether it is one that can be used: NCCL prints the others with zeros."""
    return graph.channels > 0 and min(graph.bandwidth_intra, graph.bandwidth_inter) > 0


def _least(one: ChannelGraph, other: ChannelGraph) -> ChannelGraph:
    return ChannelGraph(
        pattern=max(one.pattern, other.pattern),
        channels=min(one.channels, other.channels),
        bandwidth_intra=min(one.bandwidth_intra, other.bandwidth_intra),
        bandwidth_inter=min(one.bandwidth_inter, other.bandwidth_inter),
        type_intra=max(one.type_intra, other.type_intra, key=PATH_TYPES.index),
        type_inter=max(one.type_inter, other.type_inter, key=PATH_TYPES.index),
        same_channels=one.same_channels and other.same_channels,
    )


def nccl_tests_factors(comm_type: str, members: int) -> tuple[int, float]:
    """Return the factors that make algbw and busbw of the bytes that a member contributes.

    Parameters
    ----------
    comm_type
        ``comm_type`` of the nodes table, such as ``all_gather``.
    members
        How many ranks take part.

    Returns
    -------
    whole
        A member's bytes times this is the size of nccl-tests: the larger of a member's input and
        output.
    bus
        Algbw times this is busbw; 0 for types that have none.

    Notes
    -----
    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    n = max(members, 1)
    whole = n if comm_type in ("all_gather", "gather") else 1
    return whole, COLLECTIVES[comm_type].moved(n) / whole if comm_type in COLLECTIVES else 0.0


Model = Callable[[Ints], Floats]

_FLAT = 1.15  # times the smallest: still latency
_STRAIGHT = 0.1  # relative change of the time of a byte: bandwidth


def table_for(
    tables: tuple[MeasuredCollective, ...], comm_type: str, ranks: int, nodes: int
) -> MeasuredCollective | None:
    """Return the table of a collective among as many ranks on as many nodes; None if none is."""
    for table in tables:
        if (table.collective, table.ranks, table.nodes) == (comm_type, ranks, nodes):
            return table
    return None


def measured_times(
    table: MeasuredCollective, sizes: Ints, model: Model | None = None
) -> tuple[Floats, list[str]]:
    """Interpolate a table: times in ns, and the regime of each size.

    Up to the bandwidth regime the logarithm of the time is linear in that of the size; in the
    bandwidth regime the time is linear in the size, and beyond the table goes on as between its
    last two sizes. Below the table it is that of the smallest size or, if a model is given, less
    by what the model's is less: what a measured time has beyond the model, such as a host's
    launches, does not shrink.

    - ``sizes``: int64, shape (sizes,): bytes as nccl-tests counts them.
    - ``model``: Gives times of sizes, ns.
    """
    known = np.array(table.sizes, dtype=np.float64)
    times = _levelled(np.array(table.times, dtype=np.float64))
    wanted = np.maximum(sizes.astype(np.float64), 1.0)
    found = np.exp(np.interp(np.log(wanted), np.log(known), np.log(times)))
    flat, straight = _borders(known, times)
    linear = (wanted >= straight) & (wanted <= known[-1])
    found[linear] = np.interp(wanted[linear], known, times)
    below = wanted < known[0]
    if model is not None and below.any():
        ends = model(np.append(sizes[below], table.sizes[0]))
        shrunk = np.maximum(times[0] + ends[:-1] - ends[-1], times[0] * ends[:-1] / ends[-1])
        found[below] = np.minimum(shrunk, times[0])
    beyond = wanted > known[-1]
    found[beyond] = times[-1] + _time_of_byte(known, times) * (wanted[beyond] - known[-1])
    return found, [_regime(size, flat, straight, known) for size in wanted.tolist()]


def nearest_table(
    tables: tuple[MeasuredCollective, ...], comm_type: str, ranks: int, nodes: int
) -> MeasuredCollective | None:
    """Return the table of a collective whose ranks are nearest, within a node or over several.

    Both have to be within one node, or both over several; of equally near ones the first counts.
    """
    alike = [
        table
        for table in tables
        if table.collective == comm_type and (table.nodes > 1) == (nodes > 1) and table.ranks > 1
    ]
    return min(alike, key=lambda table: abs(np.log(table.ranks / ranks)), default=None)


def scaled_table(
    table: MeasuredCollective, ranks: int, nodes: int, own: Model, wanted: Model
) -> MeasuredCollective:
    """Return what a table would be for other ranks.

    Its latency becomes what the model says for those ranks. What it has beyond the modeled latency
    grows as the model's time for the bytes does.

    - ``own``, ``wanted``: Give times of sizes, ns, for the ranks of the table and for those that
      are wanted.
    """
    sizes = np.array(table.sizes, dtype=np.int64)
    ends = np.append(sizes, 1)
    before, after = own(ends), wanted(ends)
    least_before, least_after = before[-1], after[-1]
    grown = np.maximum(after[:-1] - least_after, 0.0) / np.maximum(before[:-1] - least_before, 1e-9)
    times = np.array(table.times)
    rest = times - least_before
    found = np.where(rest > 0, least_after + rest * grown, times * after[:-1] / before[:-1])
    return MeasuredCollective(
        table.collective, ranks, nodes, table.sizes, tuple(found.tolist()), table.name
    )


def _levelled(times: Floats) -> Floats:
    """Make times never shrink: neighbors that do are set to their mean, as often as needed."""
    blocks: list[tuple[float, int]] = []
    for time in np.log(times).tolist():
        total, count = time, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    logs = [np.full(count, total / count) for total, count in blocks]
    levelled: Floats = np.exp(np.concatenate(logs))
    return levelled


def _borders(known: Floats, times: Floats) -> tuple[float, float]:
    """Return the last size of the latency regime, and the first of the bandwidth regime."""
    flat = known[times <= _FLAT * times[0]][-1]
    per_byte = np.diff(times) / np.diff(known)
    last = per_byte[-1] if per_byte.size else 0.0
    far = np.flatnonzero(np.abs(per_byte - last) > _STRAIGHT * last)
    first = far[-1] + 1 if far.size else 0
    return float(flat), max(float(known[first]), float(flat))


def _time_of_byte(known: Floats, times: Floats) -> float:
    """Return the time of a byte beyond the table, ns; of one size, that of all its bytes."""
    if known.size == 1:
        return float(times[0] / known[0])
    return float((times[-1] - times[-2]) / (known[-1] - known[-2]))


def _regime(size: float, flat: float, straight: float, known: Floats) -> str:
    name = "latency" if size <= flat else "bandwidth" if size >= straight else "transition"
    outside = size < known[0] or size > known[-1]
    return f"{name}, extrapolated" if outside else name
