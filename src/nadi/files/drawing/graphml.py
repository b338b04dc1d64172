"""Write GraphML, which graph tools such as NetworkX, yEd and Gephi read.

The same nodes and edges as Chakra's visualizer writes: a node is an operation with its name
as ``label`` (key ``d0``), an edge a dependency with its kind as ``dependency`` (``d1``), and
an id without a node, on which others depend, is a node without a label.  That tool writes one edge
between two nodes and keeps only the last kind of dependency.  Here such an edge lists all its
kinds as ``kinds`` (``d2``).
"""

from collections.abc import Iterator

import polars as pl

from nadi.files.drawing.drawings import GraphText, encode_graph
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEP_KINDS
from nadi.trace.trace import Trace

_HEAD = b"""<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns \
http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
  <key id="d0" for="node" attr.name="label" attr.type="string" />
  <key id="d1" for="edge" attr.name="dependency" attr.type="string" />
  <key id="d2" for="edge" attr.name="kinds" attr.type="string" />
  <graph edgedefault="directed">
"""
_TAIL = b"  </graph>\n</graphml>\n"
_WORDS = {kind: "control" if kind == "ctrl" else kind for kind in DEP_KINDS}
# a bare carriage return would be read as a line feed
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})


def _edge_lines(edges: pl.DataFrame) -> pl.Series:
    """Format one edge between two nodes, with the last of its kinds in ``DEP_KINDS``."""
    joined = (
        edges.sort("kind", maintain_order=True)
        .with_columns(pl.col("kind").cast(pl.String).replace_strict(_WORDS))
        .group_by("source", "target", maintain_order=True)
        .agg(pl.col("kind").last(), kinds=pl.col("kind").str.join(" "))
    )
    several = pl.format('\n      <data key="d2">{}</data>', "kinds")
    more = pl.when(pl.col("kind") == pl.col("kinds")).then(pl.lit("")).otherwise(several)
    line = pl.format(
        '    <edge source="{}" target="{}">\n      <data key="d1">{}</data>{}\n    </edge>',
        "source",
        "target",
        "kind",
        more,
    )
    return joined.select(line).to_series()


_TEXT = GraphText(
    form="graphml",
    escape=lambda name: name.translate(_ESCAPES),
    node=pl.format(
        '    <node id="{}">\n      <data key="d0">{}</data>\n    </node>', "id", "label"
    ),
    absent=pl.format('    <node id="{}" />', "id"),
    edges=_edge_lines,
)


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as GraphML; see :func:`encode_graph`."""
    yield _HEAD
    yield from encode_graph(trace, log, _TEXT)
    yield _TAIL
