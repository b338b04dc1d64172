"""Parts of the event graph that are small enough to be drawn, and the whole of it by module.

Nodes and edges of a part of a graph as DOT, GraphML, SVG or PDF.

The event graph of a recording as a drawing, from files.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.files.drawing.drawings import DOT_ESCAPES, FORBIDDEN, draw_dot
from nadi.files.files import check_target, locate, write_beside
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.load_graph import load_graph
from nadi.graph.module_tree import PHASES, ModuleTree, find_modules
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEVICE_WORK
from nadi.units import format_count, format_ns, printable

MOST_NODES = 100
MOST_ARROWS = 400
_KINDS = {int(kind): kind.name.lower() for kind in EdgeKind}


@dataclass(frozen=True, eq=False)
class DrawnPart:
    """What is drawn.

    Attributes
    ----------
    nodes
        ``id`` (int64), ``label``, ``rank`` (-1: several), ``operations`` (how many a node
        stands for), ``is_chosen``.
    edges
        ``source``, ``target`` (ids), ``kind`` (of :class:`EdgeKind`), ``count``.
    note
        What is drawn, and what is left out, in words.
    """

    nodes: pl.DataFrame
    edges: pl.DataFrame
    note: str

    def __repr__(self) -> str:
        return f"<DrawnPart nodes={self.nodes.height} edges={self.edges.height}>"


def neighborhood(graph: EventGraph, op: int, hops: int, which: str = "") -> DrawnPart:
    """Return an operation and what is at most so many edges from it, either way.

    At most ``MOST_NODES`` operations: of more, the nearest in time. O(edges * hops),
    as far as anything is left to reach.

    - ``op``: Number of an operation of the graph.
    - ``hops``: Number of edges, at least 1.
    - ``which``: What the operation is, for the note, such as ``the first of 12 operations``.
    """
    src, dst, kind = _op_edges(graph)
    inside = np.zeros(max(graph.num_ops, int(max(src.max(initial=0), dst.max(initial=0))) + 1),
                      dtype=np.bool_)  # fmt: skip
    inside[op] = True
    for _ in range(hops):
        near = inside[src] != inside[dst]
        if not near.any():
            break  # all that can be reached: further edges add nothing
        inside[src[near]] = inside[dst[near]] = True
    found = np.flatnonzero(inside)
    edges_away = f"{hops} edge{'s' if hops > 1 else ''}"
    name = printable(graph.names(np.array([op]))[0])
    note = f"{format_count(found.size)} operations within {edges_away} of {name}"
    note += f" ({which})" if which else ""
    if found.size > MOST_NODES:
        start = np.append(graph.time[0 : 2 * graph.num_ops : 2], graph.time[2 * graph.num_ops :])
        order = np.argsort(np.abs(start[found] - start[op]), kind="stable")
        kept = found[order]
        found = np.sort(np.append(kept[kept != op][: MOST_NODES - 1], op))
        note += f"; the {MOST_NODES} nearest in time are drawn"
    edges, more = _summed(found, src, dst, kind)
    return DrawnPart(_operation_nodes(graph, found, op), edges, note + more)


def condensed(graph: EventGraph) -> DrawnPart:
    """Return the graph with a node per module and phase of the step, over all ranks.

    Modules are as deep as ``MOST_NODES`` allow; without modules, a node is an operation's
    name, of those with most operations. O(operations + edges).
    """
    tree = find_modules(graph)
    group, labels, how = _by_module(tree) if tree.paths else _by_name(graph)
    count = np.bincount(group, minlength=len(labels))
    is_work = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    device = np.bincount(group[is_work], graph.numbers("duration")[is_work], len(labels))
    nodes = pl.DataFrame({
        "id": np.arange(len(labels)),
        "label": [
            f"{label}\n{format_count(int(ops))} operations"
            + (f", {format_ns(int(time))} on devices" if time else "")
            for label, ops, time in zip(labels, count, device, strict=True)
        ],
        "rank": np.full(len(labels), -1),
        "operations": count,
        "is_chosen": np.zeros(len(labels), dtype=np.bool_),
    })  # fmt: skip
    src, dst, kind = _op_edges(graph)
    of_op = (src < graph.num_ops) & (dst < graph.num_ops)
    src, dst, kind = group[src[of_op]], group[dst[of_op]], kind[of_op]
    edges, more = _summed(np.arange(len(labels)), src, dst, kind)
    note = f"{format_count(graph.num_ops)} operations condensed to {len(labels)} nodes: {how}"
    return DrawnPart(nodes, edges, note + more)


def _op_edges(graph: EventGraph) -> tuple[Ints, Ints, Ints]:
    """Return edges between operations; moments that are of no operation follow them."""
    edges, last = graph.edges, 2 * graph.num_ops
    src, dst = (
        np.where(end < last, end // 2, end - last + graph.num_ops) for end in (edges.src, edges.dst)
    )
    other = np.flatnonzero(src != dst)
    return src[other], dst[other], edges.kind[other].astype(np.int64)


def _summed(kept: Ints, src: Ints, dst: Ints, kind: Ints) -> tuple[pl.DataFrame, str]:
    """Count edges between nodes by kind: the most frequent ones, and a note of the others."""
    inside = np.isin(src, kept) & np.isin(dst, kept) & (src != dst)
    table = pl.DataFrame({"source": src[inside], "target": dst[inside], "code": kind[inside]})
    counted = (
        table.group_by("source", "target", "code")
        .agg(count=pl.len().cast(pl.Int64))
        .sort("count", "source", "target", "code", descending=[True, False, False, False])
    )
    note = ""
    if counted.height > MOST_ARROWS:
        note = f"; {MOST_ARROWS} of {format_count(counted.height)} arrows, those of most edges"
    kinds = pl.col("code").replace_strict(_KINDS, return_dtype=pl.String)
    shown = counted.head(MOST_ARROWS).select("source", "target", kinds.alias("kind"), "count")
    return shown.sort("source", "target", "kind"), note


def _operation_nodes(graph: EventGraph, found: Ints, chosen: int) -> pl.DataFrame:
    is_op = found < graph.num_ops
    ops = found[is_op]
    ranks = np.full(found.size, -1, dtype=np.int64)
    ranks[is_op] = np.array(graph.job.ranks, dtype=np.int64)[graph.op_trace[ops]]
    labels = np.full(found.size, "all ranks entered", dtype=object)
    labels[is_op] = [
        f"{name}\nrank {rank}, id {number}, {format_ns(time)}"
        for name, rank, number, time in zip(
            graph.names(ops), ranks[is_op].tolist(), graph.numbers("id", ops).tolist(),
            graph.numbers("duration", ops).tolist(), strict=True,
        )
    ]  # fmt: skip
    return pl.DataFrame({
        "id": found, "label": labels.tolist(), "rank": ranks,
        "operations": is_op.astype(np.int64), "is_chosen": found == chosen,
    })  # fmt: skip


def _by_module(tree: ModuleTree) -> tuple[Ints, list[str], str]:
    """Group operations by module, as deep as possible, and phase."""
    depth = np.array([path.count(".") + 1 for path in tree.paths])
    names = [*tree.paths, ""]
    for most in range(int(depth.max()), 0, -1):
        around = np.arange(len(names))  # of each module, the one at this depth
        for module in np.flatnonzero(depth > most).tolist():
            around[module] = around[tree.parent[module]]
        key = around[tree.module] * len(PHASES) + tree.phase
        used, group = np.unique(key, return_inverse=True)
        if used.size <= MOST_NODES:
            labels = [
                f"{names[one // len(PHASES)]} {PHASES[one % len(PHASES)]}".strip()
                for one in used.tolist()
            ]
            return group, labels, f"modules to depth {most}, and phases of the step"
    return tree.phase.astype(np.int64), list(PHASES), "phases of the step"


def _by_name(graph: EventGraph) -> tuple[Ints, list[str], str]:
    names = graph.op_names
    common = names.value_counts(sort=True)["name"].head(MOST_NODES - 1)
    labels = [*common.to_list(), "all others"]
    known = pl.DataFrame({"name": common, "group": np.arange(common.len())})
    group = names.to_frame("name").join(known, on="name", how="left", maintain_order="left")
    found = group["group"].fill_null(common.len()).to_numpy()
    if not (found == common.len()).any():
        labels.pop()
    return found, labels, "names of operations, as no modules were recorded"


def find_operation(graph: EventGraph, name: str = "", around: str = "") -> tuple[int, str]:
    """Find the operation that a part is drawn around.

    - ``name``: A regular expression (Rust's syntax); the first operation in time whose name has it.
    - ``around``: Instead of a name, the id of a node, of the first rank that has it; or
      ``RANK:ID``.
    - Returns int: Its number in the graph.
    - and str: How many there are.
    - Raises UsageError if there is none, or the name is no regular expression.
    """
    if around:
        return _with_id(graph, around), ""
    try:
        found = np.flatnonzero(graph.named(name))
    except pl.exceptions.ComputeError:
        raise UsageError(Parameter("operation"), f"{name!r} is no regular expression",
                         "put a backslash before brackets and other signs") from None  # fmt: skip
    if not found.size:
        raise UsageError(Parameter("operation"), f"no operation has {name!r} in its name",
                         "nadi run lists names")  # fmt: skip
    first = int(found[np.argmin(graph.time[2 * found])])
    return first, f"the first of {format_count(found.size)} operations"


def _with_id(graph: EventGraph, around: str) -> int:
    given = re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,18})", around)
    if given is None:
        raise UsageError(Parameter("around"), f"{around!r} is no id", "give ID, or RANK:ID")
    chosen = graph.numbers("id") == int(given[2])
    if given[1]:
        ranks = np.array(graph.job.ranks, dtype=np.int64)
        chosen &= ranks[graph.op_trace] == int(given[1])
    found = np.flatnonzero(chosen)
    if not found.size:
        raise UsageError(Parameter("around"), f"no operation has the id {around}",
                         "the timeline of nadi report shows ids")  # fmt: skip
    return int(found[0])


SUFFIXES = (".svg", ".dot", ".graphml", ".pdf")
_LONGEST = 80  # letters of a line of a label
# from kind to color: the host, the device, between ranks, between threads
_COLORS = {
    "host_op": "#808080", "host_gap": "#808080", "launch": "#2a6fbb", "stream": "#2a6fbb",
    "kernel": "#2a6fbb", "communication": "#2f8f4e", "arrival": "#2f8f4e", "sync": "#b3372b",
    "thread": "#b3372b",
}  # fmt: skip
_KEYS = (("label", "node", "string"), ("rank", "node", "long"), ("operations", "node", "long"),
         ("kind", "edge", "string"), ("count", "edge", "long"))  # fmt: skip


def encode_part(nodes: pl.DataFrame, edges: pl.DataFrame, suffix: str, title: str) -> bytes:
    """Write nodes and edges.

    - ``nodes``: ``id``, ``label``, ``rank``, ``operations``, ``is_chosen``.
    - ``edges``: ``source``, ``target``, ``kind``, ``count``.
    - ``suffix``: One of ``SUFFIXES``.
    - ``title``: A line below the drawing.
    - Raises InputError if Graphviz is needed, and missing or fails.
    """
    if suffix == ".graphml":
        return _graphml(nodes, edges).encode()
    text = _dot(nodes, edges, title)
    return text.encode() if suffix == ".dot" else draw_dot(text, suffix[1:])


def _dot(nodes: pl.DataFrame, edges: pl.DataFrame, title: str) -> str:
    lines = ["digraph {", "\tnode [shape=box]", f'\tlabel="{_quoted(title, 0)}"']
    for row in nodes.iter_rows(named=True):
        style = ' style=filled fillcolor="#ffe08a"' if row["is_chosen"] else ""
        lines.append(f'\t{row["id"]} [label="{_quoted(row["label"])}"{style}]')
    for row in edges.iter_rows(named=True):
        times = f" x {row['count']}" if row["count"] > 1 else ""
        color = _COLORS.get(row["kind"], "#000000")
        lines.append(
            f'\t{row["source"]} -> {row["target"]} [class={row["kind"]} color="{color}" '
            f'label="{row["kind"].replace("_", " ")}{times}"]'
        )
    return "\n".join([*lines, "}\n"])


def _quoted(text: str, longest: int = _LONGEST) -> str:
    lines = (printable(line, longest) for line in _clean(text).split("\n"))
    return "\n".join(lines).translate(DOT_ESCAPES)


def _graphml(nodes: pl.DataFrame, edges: pl.DataFrame) -> str:
    lines = ["<?xml version='1.0' encoding='utf-8'?>",
             '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']  # fmt: skip
    lines += [f'  <key id="{name}" for="{of}" attr.name="{name}" attr.type="{kind}" />'
              for name, of, kind in _KEYS]  # fmt: skip
    lines.append('  <graph edgedefault="directed">')
    for row in nodes.iter_rows(named=True):
        lines += [f'    <node id="{row["id"]}">', *_data(row, "node"), "    </node>"]
    for row in edges.iter_rows(named=True):
        ends = f'source="{row["source"]}" target="{row["target"]}"'
        lines += [f"    <edge {ends}>", *_data(row, "edge"), "    </edge>"]
    return "\n".join([*lines, "  </graph>", "</graphml>\n"])


def _data(row: dict[str, object], of: str) -> list[str]:
    return [f'      <data key="{name}">{escape(_clean(str(row[name])))}</data>'
            for name, place, _ in _KEYS if place == of]  # fmt: skip


def _clean(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text.replace("\r", " "))


def draw_graph(
    paths: Sequence[Path | str],
    target: Path | str,
    *,
    operation: str = "",
    around: str = "",
    hops: int = 2,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> DrawnPart:
    """Draw what depends on an operation and what it depends on, or the whole job by module.

    Parameters
    ----------
    paths
        Folders or files, as in :func:`nadi.load_job`.
    target
        A ``.svg``, ``.dot``, ``.graphml`` or ``.pdf`` file.
    operation
        A regular expression; the part is drawn around the first operation whose name has it.
    around
        Instead, the id of an operation, or ``RANK:ID``.
    hops
        How many edges from that operation.
    overwrite
        Whether to replace an existing file.
    progress
        Called with a line of text before each longer stage.

    Returns
    -------
    DrawnPart
        What is drawn; its ``note`` says what is condensed or left out.

    Raises
    ------
    InputError
        If a file cannot be read or written, or Graphviz is needed and missing.
    UsageError
        If there is no such operation, or the target's suffix is another one.
    """
    place = locate(target)
    _check(place, operation, around)
    check_target(place, [locate(path) for path in paths], overwrite=overwrite)
    graph = load_graph(paths, progress)
    progress("choosing what is drawn")
    if operation or around:
        op, which = find_operation(graph, operation, around)
        part = neighborhood(graph, op, hops, which)
    else:
        part = condensed(graph)
    content = encode_part(part.nodes, part.edges, place.suffix, part.note)
    with write_beside(place) as file:
        file.write(content)
    return part


def _check(place: Path, operation: str, around: str) -> None:
    """Refuse what cannot be drawn before files are read."""
    if place.suffix not in SUFFIXES:
        raise UsageError(str(place), "is no drawing of a graph",
                         f"give a name that ends in {', '.join(SUFFIXES)}")  # fmt: skip
    if operation and around:
        raise UsageError(
            [Parameter("around"), ", ", Parameter("operation")],
            "both are given",
            "give one of them",
        )
