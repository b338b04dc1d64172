"""A trace as a graph of names and edges between ids, for the graph formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.files.files import line_pieces
from nadi.trace.attributes import CODES
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEP_KINDS, GIVEN_DEPS
from nadi.trace.trace import Trace

__all__ = ["FORBIDDEN", "GraphText", "edges_of", "encode_graph"]

# what XML 1.0 cannot hold, however written; C programs also end a text at NUL
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_REPLACEMENT = "\ufffd"
_KINDS = pl.Enum(DEP_KINDS)


class GraphText(NamedTuple):
    """The text elements of a graph format.

    Attributes
    ----------
    form
        Prefix of the codes of issues.
    escape
        Function that escapes one name.
    node, absent
        The line of a node, from the columns ``id`` and ``label``; the line of an id without a
        node, on which others depend, from the column ``id``.
    edges
        Function that returns the lines of edges, for the result of :func:`edges_of`.
    """

    form: str
    escape: Callable[[str], str]
    node: pl.Expr
    absent: pl.Expr
    edges: Callable[[pl.DataFrame], pl.Series]


def encode_graph(trace: Trace, log: IssueLog, text: GraphText) -> Iterator[bytes]:
    """Write the nodes and edges of a trace; the format writes its header and footer.

    Parameters
    ----------
    trace
        Any trace.
    log
        Collects what is not written: ``form.name``, ``.columns``, ``.attributes``.

    Yields
    ------
    bytes
        UTF-8, piece by piece. O(nodes + dependencies).
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

    Returns
    -------
    polars.DataFrame
        ``source`` and ``target``, int64 ids; ``kind``, one of ``DEP_KINDS``.  Includes those on
        nodes outside the trace, which are attributes; no edge occurs twice.
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

    Parameters
    ----------
    names
        Text or categorical, shape (names,).
    escape
        Escapes one name; it is called once for each distinct name.

    Returns
    -------
    polars.Series
        Text, shape (names,); control characters are U+FFFD.
    int
        Number of names with control characters.
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
        "names contain control characters, which are written as U+FFFD",
    )  # fmt: skip
    log.add(
        f"{form}.columns", "info", trace.nodes.height,
        "operations are written with their id and name only, without times and sizes",
    )  # fmt: skip
    log.add(
        f"{form}.attributes", "info", int((attributes.type != CODES["dependency"]).sum()),
        "attributes are not written",
    )  # fmt: skip
