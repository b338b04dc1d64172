"""Graphviz: DOT text, and drawings of small traces as SVG or PDF.

A trace as a graph of names and edges between ids, for the graph formats.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.files.files import line_pieces
from nadi.trace.attributes import CODES
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEP_KINDS, GIVEN_DEPS
from nadi.trace.trace import Trace
from nadi.units import UNSHOWN

# with what XML 1.0 cannot hold, however written; C programs also end a text at NUL
FORBIDDEN = re.compile(rf"[{UNSHOWN}\ufffe\uffff]")
_REPLACEMENT = "\ufffd"
_KINDS = pl.Enum(DEP_KINDS)


class GraphText(NamedTuple):
    """The text elements of a graph format."""

    form: str  # prefix of the codes of issues
    escape: Callable[[str], str]  # function that escapes one name
    # node, absent: the line of a node, from the columns ``id`` and ``label``; the line of an id
    # without a node, on which others depend, from the column ``id``
    node: pl.Expr
    absent: pl.Expr
    # function that returns the lines of edges, for the result of ``edges_of``
    edges: Callable[[pl.DataFrame], pl.Series]


def encode_graph(trace: Trace, log: IssueLog, text: GraphText) -> Iterator[bytes]:
    """Write the nodes and edges of a trace; the format writes its header and footer.

    - ``trace``: Any trace.
    - ``log``: Collects what is not written: ``form.name``, ``.columns``, ``.attributes``.
    - Yields: UTF-8, piece by piece. O(nodes + dependencies).
    """
    labels, num_changed = _printable(trace.nodes["name"], text.escape)
    _note_what_is_left_out(trace, log, text.form, num_changed)
    edges = edges_of(trace)
    nodes = pl.DataFrame({"id": trace.nodes["id"], "label": labels})
    yield from line_pieces(nodes.select(text.node).to_series())
    yield from line_pieces(_absent_ids(trace, edges).to_frame("id").select(text.absent).to_series())
    yield from line_pieces(text.edges(edges))


def edges_of(trace: Trace) -> pl.DataFrame:
    """Return the dependencies of a trace by the ids of their nodes. O(dependencies).

    - Returns: ``source`` and ``target``, int64 ids; ``kind``, one of ``DEP_KINDS``.  Includes those
      on nodes outside the trace, which are attributes; no edge occurs twice.
    """
    if not trace.deps.height and (trace.column("parent") >= 0).any():
        # a host trace by itself: all that it says is who called whom
        child = np.flatnonzero(trace.column("parent") >= 0)
        call = pl.Series(["call"], dtype=_KINDS).new_from_index(0, child.size)
        return _edges(trace, trace.column("parent")[child], child, call)
    linked = _edges(trace, trace.deps["src"], trace.deps["dst"], trace.deps["kind"])
    if trace.deps.height and not trace.deps["kind"].is_in(GIVEN_DEPS).any():
        return linked  # where what the host trace named is a dependency of another kind
    return pl.concat([linked, _named_edges(trace)]).unique(maintain_order=True)


def _edges(trace: Trace, src: Any, dst: Any, kind: pl.Series) -> pl.DataFrame:
    ids = trace.nodes["id"]
    return pl.DataFrame({"source": ids.gather(src), "target": ids.gather(dst), "kind": kind})


def _named_edges(trace: Trace) -> pl.DataFrame:
    """Return the dependencies that are kept as attributes, such as ``ctrl_deps[0]``."""
    attributes = trace.attributes
    rows = np.flatnonzero(attributes.type == CODES["dependency"])
    kinds = [name.partition("_deps")[0] for name in attributes.names]
    of_name = pl.Series([kind if kind in GIVEN_DEPS else None for kind in kinds], dtype=_KINDS)
    edges = pl.DataFrame(
        {
            "source": attributes.value[rows],
            "target": trace.nodes["id"].gather(attributes.node[rows]),
            "kind": of_name.gather(attributes.name[rows]),
        }
    )
    return edges.drop_nulls()


def _absent_ids(trace: Trace, edges: pl.DataFrame) -> pl.Series:
    """Return the source ids of edges that no node of the trace has, each once."""
    sources = edges["source"].unique(maintain_order=True)
    return sources.filter(~sources.is_in(trace.nodes["id"].implode()))


def _printable(names: pl.Series, escape: Callable[[str], str]) -> tuple[pl.Series, int]:
    """Escape names for a format.

    - ``names``: Text or categorical, shape (names,).
    - ``escape``: Escapes one name; it is called once for each distinct name.
    - Returns polars.Series: Text, shape (names,); characters that are not shown are U+FFFD.
    - and int: Number of names with such characters.
    """
    texts = names.cast(pl.String)
    unique = texts.unique()
    clean = [FORBIDDEN.sub(_REPLACEMENT, name) for name in unique.to_list()]
    changed = unique.filter(unique != pl.Series(clean, dtype=pl.String))
    written = texts.replace_strict(unique, [escape(name) for name in clean], return_dtype=pl.String)
    return written, int(texts.is_in(changed.implode()).sum())


def _note_what_is_left_out(trace: Trace, log: IssueLog, form: str, num_changed: int) -> None:
    """Record what a drawing of a trace leaves out, under codes that begin with ``form``."""
    attributes = trace.attributes
    log.add(
        f"{form}.name", "info", num_changed,
        "names contain characters that are not shown, which are written as U+FFFD",
    )  # fmt: skip
    log.add(
        f"{form}.columns", "info", trace.nodes.height,
        "operations are written with their id and name only, without times and sizes",
    )  # fmt: skip
    log.add(
        f"{form}.attributes", "info", int((attributes.type != CODES["dependency"]).sum()),
        "attributes are not written",
    )  # fmt: skip


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

    - Raises InputError if the drawing has more points than :data:`MAX_POINTS`, or the package
      ``graphviz`` or the program ``dot`` is missing or fails.
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

    - Raises InputError if the package ``graphviz`` or the program ``dot`` is missing or fails.
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
