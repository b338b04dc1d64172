"""The shapes of the operands of operators, by name: whether two do the same work."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window
from nadi.trace.arrays import Bools, Ints
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
    stated, texts = _values(trace, _STATED, wanted)
    wanted[stated] = False
    args, of_args = _values(trace, "args", wanted)
    node, text = np.append(stated, args), texts
    if args.size:
        text = pl.concat([texts, of_args.str.extract(_IN_ARGUMENTS)])
        known = np.flatnonzero(text.is_not_null().to_numpy())
        node, text = node[known], text[known]
    order = np.argsort(node, kind="stable")
    return pl.DataFrame({"node": node[order], "text": text[order].str.replace_all(r"\s", "")})


def _values(trace: Trace, name: str, wanted: Bools) -> tuple[Ints, pl.Series]:
    """Return the attributes with a name of some nodes: the node and the text of each.

    ``wanted`` is bool, shape (nodes + 1,), the last for the trace itself.
    """
    nodes, texts = [np.empty(0, dtype=np.int64)], [pl.Series(dtype=pl.String)]
    for part in trace.attribute_parts:  # to join them takes longer than to search each
        rows, node = part.named(name)
        here = wanted[node]
        if here.any():
            nodes.append(node[here])
            texts.append(part.attributes.texts(rows[here]))
    return np.concatenate(nodes), pl.concat(texts)


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
