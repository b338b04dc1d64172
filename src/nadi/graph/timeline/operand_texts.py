"""What operations work on, as texts for the page's timeline: shapes, types, launch grids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from nadi.graph.timeline.page_timeline import TimelineEvents
from nadi.graph.timeline.schedule_timeline import TimelinePart
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import Attributes
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace

__all__ = ["operand_texts"]

# attributes of host traces, which hold nothing else
_WHOLE = {"inputs.shapes": "input shapes", "inputs.types": "input types"}
# within "args" of device traces
_NUMBERS, _TEXTS = r"(\[[-\[\]0-9,\s]*\])", r'(\[(?:"[^"\\]*"|[\[\],\s])*\])'
_ONE = r'("[^"\\]*"|-?[0-9.]+)'
_WITHIN = {
    "input shapes": rf'"Input Dims"\s*:\s*{_NUMBERS}',
    "input types": rf'"Input type"\s*:\s*{_TEXTS}',
    "grid": rf'"grid"\s*:\s*{_NUMBERS}',
    "block": rf'"block"\s*:\s*{_NUMBERS}',
    "bytes": rf'"(?:bytes|Bytes)"\s*:\s*{_ONE}',
    "collective": rf'"Collective name"\s*:\s*{_ONE}',
    "elements": rf'"In msg nelems"\s*:\s*{_ONE}',
    "element type": rf'"dtype"\s*:\s*{_ONE}',
}
_MOST_NODES = 600_000  # of all traces, above which no texts are made
_LETTERS = 8  # for each event, on average: what distinct texts may take
_ROOM = 100_000  # letters, in addition
_LONGEST = 2000


def operand_texts(parts: Sequence[TimelinePart], events: TimelineEvents) -> tuple[list[str], Ints]:
    """Describe the operands of events.

    Texts that few events have are left out if all would take more room than the events; so are all
    texts of more than 600,000 operations.

    Returns
    -------
    list of str
        Distinct texts, a line per field; the first is empty.
    numpy.ndarray
        int64, shape (events,): the text of each event.
    """
    found = np.zeros(events.start.size, dtype=np.int64)
    if sum(part.job.num_nodes for part in parts) > _MOST_NODES:
        return [""], found
    texts: dict[str, int] = {"": 0}
    known: dict[int, tuple[list[str], Ints]] = {}
    for number, part in enumerate(parts):
        for place, trace in enumerate(part.job.traces):
            if id(trace) not in known:
                known[id(trace)] = _of_nodes(trace)
            distinct, code = known[id(trace)]
            number_of = np.array([texts.setdefault(text, len(texts)) for text in distinct])
            event_of = events.event_of[number, place]
            drawn = event_of >= 0
            found[event_of[drawn]] = number_of[code[drawn]]
    return _within_room(list(texts), found)


def _within_room(texts: list[str], code: Ints) -> tuple[list[str], Ints]:
    """Keep the texts of most events, as far as there is room."""
    used = np.bincount(code, minlength=len(texts))
    order = np.argsort(-used, kind="stable")
    order = np.append(0, order[(order != 0) & (used[order] > 0)])
    sizes = np.cumsum([len(texts[i]) for i in order])
    kept = order[sizes <= _LETTERS * code.size + _ROOM]
    new = np.zeros(len(texts), dtype=np.int64)
    new[kept] = np.arange(kept.size)
    return [texts[i] for i in kept], new[code]


def _of_nodes(trace: Trace) -> tuple[list[str], Ints]:
    """Return the distinct texts of a trace's operations, and the text of each node."""
    texts, code = [""], np.zeros(trace.nodes.height, dtype=np.int64)
    for title, node, values in _fields(trace):
        known: dict[str, int] = {"": 0}
        mine = np.zeros(code.size, dtype=np.int64)
        mine[node] = [known.setdefault(value, len(known)) for value in values]
        pairs, code = np.unique(code * len(known) + mine, return_inverse=True)
        added = ["", *(f"{title}: {value[:_LONGEST]}\n" for value in list(known)[1:])]
        texts = [texts[pair // len(known)] + added[pair % len(known)] for pair in pairs.tolist()]
    return [text.removesuffix("\n") for text in texts], code


def _fields(trace: Trace) -> Iterator[tuple[str, Ints, Sequence[str]]]:
    """Yield the title of each field, and the nodes that have it with their values."""
    attributes = trace.attributes
    of_kind = trace.category_mask("operator", "runtime", "driver", *DEVICE_WORK)
    given = set()
    for name, title in _WHOLE.items():
        node, spans = _spans(attributes, name, of_kind)
        if spans:
            given.add(title)
            yield title, node, spans
    if given:  # args of operators say the same again
        of_kind = of_kind & ~trace.category_mask("operator")
    node, spans = _spans(attributes, "args", of_kind)
    content = pl.Series(spans, dtype=pl.String)
    for title, pattern in _WITHIN.items():
        if title in given:
            continue
        value = content.str.extract(pattern)
        has = value.is_not_null()
        if has.any():
            yield title, node[has.to_numpy()], value.filter(has).to_list()


def _spans(attributes: Attributes, name: str, of_kind: Bools) -> tuple[Ints, list[str]]:
    """Return the nodes with an attribute that is more than an empty list, and its texts."""
    rows = attributes.rows_named(name)
    node = attributes.node[rows].astype(np.int64)
    wanted = (node >= 0) & (attributes.length[rows] > len("[]"))
    wanted &= of_kind[node]
    rows, node = rows[wanted], node[wanted]
    content, offset = attributes.bytes_around(rows)
    begin = attributes.value[rows] - offset
    spans = zip(begin.tolist(), (begin + attributes.length[rows]).tolist(), strict=True)
    held = content.data
    return node, [str(held[at:end], "utf-8", "replace") for at, end in spans]
