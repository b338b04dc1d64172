"""A simulated job as a timeline, a page, and a log for Chakra's timeline visualizer.

A schedule that was saved without its traces, as a part of a timeline.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.files.files import locate, write_pieces
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.replay import replay_graph
from nadi.graph.timeline.schedule_timeline import TimelinePart, write_timelines
from nadi.graph.timeline.timeline_section import page_timeline
from nadi.graph.windows import choose_window
from nadi.results.page.html_page import write_page
from nadi.results.text import to_json
from nadi.simulation.accounts.simulation_as_recording import simulated_graph, track_names
from nadi.simulation.accounts.simulation_results import results_of
from nadi.simulation.runs.result import SIMULATION
from nadi.simulation.runs.saved import SavedSimulation
from nadi.simulation.simulation import Simulation
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODE_KINDS, NODES, SCHEDULE
from nadi.trace.trace import Job, Provenance, Schedule, Trace
from nadi.version import __version__

_ROWS_AT_ONCE = 100_000
# what the visualizer tells the lane of a node by, anywhere in its name
_LABELS = {
    "MEM_LOAD": "MEM_LOAD_NODE_REMOTE_MEMORY",
    "MEM_STORE": "MEM_STORE_NODE_REMOTE_MEMORY",
    "COMP": "COMP_NODE",
    "COMM_SEND": "COMM_SEND_NODE",
    "COMM_RECV": "COMM_RECV_NODE",
    "COMM_COLL": "COMM_COLL_NODE",
}


def simulated_part(simulation: Simulation) -> TimelinePart:
    """Create a timeline part from a simulated job and its critical path.

    Each rank's work lies on its threads and streams; what is on none, on the tracks ``host``,
    ``compute``, ``communication`` and ``receive``. Of ranks that are alike one is shown, and its
    title says how many there are.
    """
    graph = simulated_graph(simulation)
    replay = replay_graph(graph)
    path = walk_critical_path(replay, choose_window(graph, []))
    table = replay.schedule().table.with_columns(
        pl.col("resource").replace(track_names(simulation))
    )
    more = simulation.cycles.size - simulation.program.num_ranks
    title = f"and {more} more with the same schedule" if more else ""
    return TimelinePart(Schedule(table), graph.job, path, title)


@checked
def write_simulated_timeline(simulation: Simulation, path: Path | str) -> pl.DataFrame:
    """Write a simulated job as a timeline: a process per rank, a track per lane.

    Operations on the critical path are marked, and arrows follow it from rank to rank.

    Parameters
    ----------
    path
        ``.json`` or ``.pftrace``, also with ``.gz``; see :func:`nadi.graph.write_timelines`, which
        says what is returned and raised too.
    """
    return write_timelines(path, [simulated_part(simulation)], simulation.system.name or "job")


@checked
def write_issue_lines(simulation: Simulation, path: Path | str) -> pl.DataFrame:
    """Write a log of issued and completed nodes for Chakra's timeline visualizer.

    A line such as ``issue,npu_id=0,curr_cycle=5,node_id=1,node_name=COMP_NODE_matmul`` for
    each, or ``callback`` with the same, in order of time. A cycle is a ns. The name begins
    with the kind of the node, by which the visualizer chooses its lane; what it would split
    at is ``_``. Metadata, for which it has no lane, is left out.

    Parameters
    ----------
    path
        With ``.gz`` at its end it is compressed. An address will do. It is replaced only once
        all is written.

    Returns
    -------
    polars.DataFrame
        ``schema.ISSUES``: what is left out. O(nodes log nodes), of all ranks.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    program, like = simulation.program, simulation.like
    sizes = np.diff(program.first)[like]
    rank = np.repeat(np.arange(like.size), sizes)
    within = np.arange(rank.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    node = program.first[like[rank]] + within
    known = np.isin(program.kind, [NODE_KINDS.index(kind) for kind in _LABELS])
    shown = known[node]
    rank, node = rank[shown], node[shown]
    start, end = simulation.start[node], simulation.end[node]
    instant = end == start
    # of one time what ends stands before what begins, but never before its own beginning
    time = np.concatenate([start, end])
    turn = np.concatenate([np.ones(node.size, dtype=np.int64), 2 * instant])
    order = np.lexsort((turn, time))
    log = IssueLog()
    log.add(
        "lines.metadata", "info", int((~shown).sum()),
        "metadata nodes and nodes without a kind are not written: the visualizer has no lane for "
        "them",
    )  # fmt: skip
    said = pl.DataFrame({
        "word": pl.Series(["issue", "callback"]).gather(order // max(node.size, 1)),
        "rank": np.tile(rank, 2)[order],
        "time": time[order],
        "node": np.tile(node, 2)[order],
    })  # fmt: skip
    write_pieces(locate(path), _lines(said, _described(simulation)))
    return log.table()


def _described(simulation: Simulation) -> pl.DataFrame:
    """Return the id and the name of each node of the program, as the lines have them."""
    program = simulation.program
    nodes = pl.concat([trace.nodes.select("id", "name", "kind") for trace in program.traces])
    nodes = nodes[program.first[program.rank] + program.row]
    label = pl.col("kind").cast(pl.String).replace_strict(_LABELS, default="")
    bare = (
        pl.col("name").cast(pl.String)
        .str.replace_all(r"[,=\pC\s]", "_")
        .str.strip_prefix(label).str.strip_chars_start("_")
        # no label of another kind may stand in it
        .str.replace_all("_NODE", "_node", literal=True)
        .str.replace_all("_MEMORY", "_memory", literal=True)
    )  # fmt: skip
    return nodes.select("id", name=pl.concat_str(label, pl.lit("_"), bare))


def _lines(said: pl.DataFrame, nodes: pl.DataFrame) -> Iterator[bytes]:
    for piece in said.iter_slices(_ROWS_AT_ONCE):
        of_node = nodes[piece["node"].to_numpy()]
        lines = piece.select(
            pl.format(
                "{},npu_id={},curr_cycle={},node_id={},node_name={}\n",
                "word", "rank", "time", of_node["id"], of_node["name"],
            ).str.join("")
        )  # fmt: skip
        yield lines.item().encode()


_HOST = ("cpu", "thread")  # how resources of the host begin
_TRACKS = {"cpu": "host", "": "receive"}  # the titles that work on no lane has in simulated_part


def saved_part(
    saved: SavedSimulation, title: str = "", ranks: Sequence[int] | None = None
) -> TimelinePart:
    """Create a timeline part from a saved simulation; its critical path is not known.

    - ``title``: As of :class:`TimelinePart`.
    - ``ranks``: The ranks that are shown; all by default.
    """
    schedule = saved.schedule
    if ranks is not None:
        schedule = schedule.filter(pl.col("rank").is_in(list(ranks)))
    parts = schedule.sort("rank", maintain_order=True).partition_by("rank", maintain_order=True)
    world_size = saved.rank_times.height
    traces = [_trace(rows, world_size) for rows in parts]
    row = np.concatenate([np.arange(rows.height) for rows in parts] or [np.empty(0, np.int64)])
    ordered = pl.concat(parts) if parts else schedule
    columns = {name: ordered[name] for name in ("rank", "start", "end")}
    resource = ordered["resource"].cast(pl.String).replace(_TRACKS)
    table = SCHEDULE.build(ordered.height, {**columns, "node": row, "resource": resource})
    return TimelinePart(Schedule(table), Job(tuple(traces), MATCHES.empty(), ISSUES.empty()),
                        None, title)  # fmt: skip


def _trace(rows: pl.DataFrame, world_size: int) -> Trace:
    """Return the operations of a rank, each after the one that let it be issued."""
    resource = rows["resource"].cast(pl.String)
    is_host = pl.Series(np.zeros(rows.height, dtype=np.bool_))
    for begin in _HOST:
        is_host |= resource.str.starts_with(begin)
    category = np.where(is_host.to_numpy(), "operator", "kernel")
    nodes = NODES.build(rows.height, {
        "id": rows["id"], "name": rows["name"].cast(pl.String), "kind": rows["kind"],
        "category": category.tolist(), "start": rows["start"],
        "duration": rows["end"] - rows["start"], "is_cpu": is_host,
    })  # fmt: skip
    numbered = rows.select("id", row=pl.int_range(pl.len(), dtype=pl.Int64))
    waits = rows.select(id="cause", dst=pl.int_range(pl.len(), dtype=pl.Int64)).drop_nulls()
    edges = waits.join(numbered, on="id", how="inner", maintain_order="left")
    deps = DEPS.build(edges.height, {"src": edges["row"], "dst": edges["dst"], "kind": "order"})
    rank = int(rows["rank"][0])
    return Trace(nodes, deps, GROUPS.empty(), ISSUES.empty(), Provenance(__version__, ()), rank,
                 world_size)  # fmt: skip


@checked
def write_simulation_page(simulation: Simulation, path: Path, title: str) -> None:
    """Write the page of a simulated job.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    data = msgspec.json.decode(to_json(SIMULATION.data(results_of(simulation))))
    write_page(path, {"simulation": data}, page_timeline([simulated_part(simulation)]), title=title)
