"""Nodes and edges of a part of a graph as DOT, GraphML, SVG or PDF."""

from __future__ import annotations

from html import escape

import polars as pl

from nadi.files.drawing.dependency_graph import FORBIDDEN
from nadi.files.drawing.drawings import DOT_ESCAPES, draw_dot
from nadi.units import printable

__all__ = ["SUFFIXES", "encode_part"]

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

    Parameters
    ----------
    nodes
        ``id``, ``label``, ``rank``, ``operations``, ``is_chosen``.
    edges
        ``source``, ``target``, ``kind``, ``count``.
    suffix
        One of ``SUFFIXES``.
    title
        A line below the drawing.

    Raises
    ------
    InputError
        If Graphviz is needed, and missing or fails.
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
