"""Graphviz: DOT text, and drawings of small traces as SVG or PDF."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from nadi.errors import InputError
from nadi.files.drawing.dependency_graph import GraphText, encode_graph
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEP_KINDS
from nadi.trace.trace import Trace

__all__ = ["DOT_ESCAPES", "MAX_POINTS", "draw_dot", "encode", "encode_pdf", "encode_svg"]

MAX_POINTS = 100_000
"""Largest drawing: ``dot`` places a point for each box and for each level that an arrow passes.

Measured with ``dot`` 2.43 on two busy processors: 65,000 points (2,000 operations of a
transformer) take 2 s, 80,000 (5,000 of four ranks) 15 s, 650,000 (12,000) 80 s, and 480,000
of a GPU's operations, 27,000, more than 5 minutes.
"""

_HEAD = b"digraph {\n\tnode [shape=box]\n"
# as dot lays out by default, 1,000 operations take it minutes: without its network simplex
# and with straight arrows less than a second, and boxes stand a little less neatly
_QUICK = b"\tgraph [nslimit=0 nslimit1=0 splines=line]\n"
_NEAT_NODES = 250
_TAIL = b"}\n"
# arrow heads of data and control as in Chakra's visualizer
_STYLES = {
    "call": 'arrowhead=tee style=dotted color="#808080"',
    "order": 'arrowhead=normal color="#808080"',
    "launch": 'arrowhead=vee color="#2a6fbb"',
    "stream": 'arrowhead=normal color="#2a6fbb"',
    "event": 'arrowhead=diamond color="#2a6fbb"',
    "sync": 'arrowhead=diamond color="#b3372b"',
    "thread": 'arrowhead=vee color="#b3372b"',
    "comm": 'arrowhead=normal color="#2f8f4e"',
    "raw": "arrowhead=normal style=dashed",
    "war": "arrowhead=empty style=dashed",
    "waw": "arrowhead=onormal style=dashed",
    "data": "arrowhead=normal",
    "ctrl": "arrowhead=tee",
}
# dot reads entities in quoted texts, and its own escapes begin with a backslash
DOT_ESCAPES = str.maketrans(
    {"&": "&amp;", "\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\n", "\t": " "}
)


def _edge_lines(edges: pl.DataFrame) -> pl.Series:
    styles = {kind: f"class={kind} {_STYLES[kind]}" for kind in DEP_KINDS}
    style = pl.col("kind").cast(pl.String).replace_strict(styles, return_dtype=pl.String)
    return edges.select(pl.format("\t{} -> {} [{}]", "source", "target", style)).to_series()


_TEXT = GraphText(
    form="dot",
    escape=lambda name: name.translate(DOT_ESCAPES),
    node=pl.format('\t{} [label="{}"]', "id", "label"),
    absent=pl.format("\t{} [style=dashed]", "id"),
    edges=_edge_lines,
)


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as DOT text; see :func:`encode_graph`.

    An arrow's ``class`` is its kind; an id without a node, on which others depend, is a dashed box.
    """
    yield _HEAD
    if trace.nodes.height > _NEAT_NODES:
        yield _QUICK
    yield from encode_graph(trace, log, _TEXT)
    yield _TAIL


def encode_svg(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Draw a trace as SVG; raises InputError as :func:`encode_pdf` does."""
    return iter([_draw(trace, log, "svg")])


def encode_pdf(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Draw a trace as PDF.

    Raises
    ------
    InputError
        If the drawing has more points than :data:`MAX_POINTS`, or the package ``graphviz``
        or the program ``dot`` is missing or fails.
    """
    return iter([_draw(trace, log, "pdf")])


def _num_points(trace: Trace) -> int:
    """Count the points that ``dot`` places: boxes, and the levels that arrows reach or cross.

    A box is one level below its lowest dependency.  For a graph that is too large in any case,
    the result is a lower bound.
    """
    height, num_deps = trace.nodes.height, trace.deps.height
    if height + num_deps > MAX_POINTS:
        return height + num_deps
    sources: list[int] = trace.deps["src"].to_list()
    targets: list[int] = trace.deps["dst"].to_list()
    followers: list[list[int]] = [[] for _ in range(height)]
    waiting = [0] * height
    for source, target in zip(sources, targets, strict=True):
        followers[source].append(target)
        waiting[target] += 1
    level = [0] * height
    ready = [row for row in range(height) if waiting[row] == 0]
    for row in ready:  # grows meanwhile; what is in a cycle never gets in
        for follower in followers[row]:
            level[follower] = max(level[follower], level[row] + 1)
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    passed = sum(
        abs(level[target] - level[source]) for source, target in zip(sources, targets, strict=True)
    )
    return height + passed


def _draw(trace: Trace, log: IssueLog, form: str) -> bytes:
    if (num_points := _num_points(trace)) > MAX_POINTS:
        raise InputError(
            "",
            f"the drawing has at least {num_points:,} points, which are operations and the levels "
            f"that arrows cross; with more than {MAX_POINTS:,}, graphviz can take hours",
            "write .dot or .graphml, and open it with a tool that shows a part of the graph",
        )
    return draw_dot(b"".join(encode(trace, log)).decode(), form)


def draw_dot(text: str, form: str) -> bytes:
    """Draw DOT text as ``svg`` or ``pdf``.

    Raises
    ------
    InputError
        If the package ``graphviz`` or the program ``dot`` is missing or fails.
    """
    try:
        import graphviz
    except ImportError:
        raise InputError(
            "", "drawing needs the Python package graphviz, which is not installed",
            "pip install 'nadi[graphviz]', or write .dot",
        ) from None  # fmt: skip
    try:
        drawn = graphviz.Source(text).pipe(format=form, quiet=True)
    except graphviz.ExecutableNotFound:
        raise InputError(
            "", "drawing needs Graphviz's program dot, which is not on PATH",
            "install Graphviz from your system's packages, or write .dot",
        ) from None  # fmt: skip
    except graphviz.CalledProcessError as error:
        message = (error.stderr or b"").decode(errors="replace").strip().partition("\n")[0]
        raise InputError(
            "", f"dot ended with {error.returncode}: {message or 'no message'}",
            "write .dot and inspect it",
        ) from None  # fmt: skip
    return bytes(drawn)
