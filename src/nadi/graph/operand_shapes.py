"""The shapes of the operands of operators, by name: whether two do the same work."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window
from nadi.trace.arrays import Bools
from nadi.trace.trace import Trace

Shapes = dict[str, frozenset[str]]
"""Of each operator, all that is stated of the shapes of its operands, as text."""

NO_SHAPES = pl.DataFrame(schema={"node": pl.Int64, "text": pl.String})
"""What :func:`stated_shapes` returns of a trace that states none."""

_STATED = "inputs.shapes"
_IN_ARGUMENTS = r'"Input Dims"\s*:\s*(\[[^"]*\])'


def stated_shapes(trace: Trace, among: Bools | None = None) -> pl.DataFrame:
    """Return what a trace states of the shapes of operands: ``node``; ``text``, without spaces.

    A row for each node of which it states any: as the host trace states it, if that does.

    - ``among``: bool, shape (nodes,): the nodes of interest; all by default. O(attributes of
      these).
    """
    wanted = np.append(trace.category_mask("operator"), False)
    if among is not None:
        wanted[:-1] &= among
    attributes = trace.attributes
    stated, args = (attributes.rows_named(name) for name in (_STATED, "args"))
    stated = stated[wanted[attributes.node[stated]]]
    wanted[attributes.node[stated]] = False
    args = args[wanted[attributes.node[args]]]
    texts = [attributes.texts(stated), attributes.texts(args).str.extract(_IN_ARGUMENTS)]
    node = attributes.node[np.append(stated, args)].astype(np.int64)
    text = pl.concat(texts).str.replace_all(r"\s", "")
    known = np.flatnonzero(text.is_not_null().to_numpy())
    known = known[np.argsort(node[known], kind="stable")]
    return pl.DataFrame({"node": node[known], "text": text[known]})


def shapes_in(graph: EventGraph, window: Window, traces: Iterable[int] | None = None) -> Shapes:
    """Return the shapes of the operands of the operators that begin in a window.

    - ``traces``: Positions in ``graph.job.traces``; all by default.
    - Returns: Without operators of which the recording states no shapes. O(operations).
    """
    begin, end = window.start(graph.time), window.end(graph.time)
    start = graph.time[0 : 2 * graph.num_ops : 2]
    inside = np.append((start >= begin) & (start <= end), False)
    found: dict[str, set[str]] = {}
    for number in range(len(graph.job.traces)) if traces is None else traces:
        trace, op = graph.job.traces[number], graph.ops_of_rows(number)
        stated = stated_shapes(trace)
        stated = stated.filter(pl.Series(inside[op[stated["node"].to_numpy()]]))
        names = trace.nodes["name"].gather(stated["node"]).cast(pl.String)
        pairs = stated.select(pl.Series("name", names, dtype=pl.String), "text").unique()
        for name, shapes in pairs.iter_rows():
            found.setdefault(name, set()).add(shapes)
    return {name: frozenset(shapes) for name, shapes in found.items()}


def with_other_shapes(one: Shapes, other: Shapes) -> set[str]:
    """Return the operators of both whose operands have other shapes in one than in the other."""
    return {name for name in one.keys() & other.keys() if one[name] != other[name]}
