"""Events of Chrome's trace format, written from columns and spans of bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from nadi.kernels._jit import kernel

__all__ = [
    "ARGS",
    "BYTES_PER_NUMBER",
    "CAT",
    "FIXED_BYTES",
    "OTHER",
    "PID",
    "TID",
    "Events",
    "Rows",
    "write_events",
]

# what a span of an event is: its category, ids or args as recorded, or another key
CAT, PID, TID, ARGS, OTHER = range(5)
_NUM_ROLES = 5
# fixed parts of an event, texts 0 to 7; then come those that the columns name
_BEGIN, _NAME, _PID, _TID, _TS, _DUR, _ARGS_KEY, _END = range(8)
# upper bounds: of an event without its texts and spans, and of a number in its args
FIXED_BYTES = 200
BYTES_PER_NUMBER = 24


class Rows(NamedTuple):
    """What is known of every event by columns.

    Attributes
    ----------
    category, name
        int64, shape (rows,): texts; JSON strings with their quotes.
    pid, tid
        int64, shape (rows,).
    start, duration
        int64 ns, shape (rows,).
    values
        int64, shape (fields, rows): the args; -1 is left out.
    key, is_text
        int64 and bool, shape (fields,): texts with a colon at the end; whether the values
        are texts.
    """

    category: np.ndarray
    name: np.ndarray
    pid: np.ndarray
    tid: np.ndarray
    start: np.ndarray
    duration: np.ndarray
    values: np.ndarray
    key: np.ndarray
    is_text: np.ndarray


class Events(NamedTuple):
    """Events in order, and where their bytes are.

    Attributes
    ----------
    order
        int64, shape (events,): a row; or ``-1 - span``, a span that is the whole event.
    first_span
        int64, shape (rows + 1,): row r has the spans ``first_span[r]:first_span[r + 1]``.
    role, key
        uint8 and int64, shape (spans,): what a span is, and the text of its key.
    at, length
        int64, shape (spans,): where it lies in ``recorded``.
    recorded
        uint8: bytes that were read.
    texts, first_text
        uint8, and int64 of shape (texts + 1,): text t is
        ``texts[first_text[t]:first_text[t + 1]]``.
    """

    order: np.ndarray
    first_span: np.ndarray
    role: np.ndarray
    key: np.ndarray
    at: np.ndarray
    length: np.ndarray
    recorded: np.ndarray
    texts: np.ndarray
    first_text: np.ndarray


@register_jitable
def _copy(out: np.ndarray, at: int, source: np.ndarray, low: int, high: int) -> int:
    for i in range(low, high):
        out[at + i - low] = source[i]
    return at + high - low


@register_jitable
def _text(out: np.ndarray, at: int, events: Events, text: int) -> int:
    return _copy(out, at, events.texts, events.first_text[text], events.first_text[text + 1])


@register_jitable
def _digits(out: np.ndarray, at: int, number: int) -> int:
    """Write an integer in decimal; -2^63 too, which has no positive counterpart."""
    rest = np.uint64(number)
    if number < 0:
        out[at] = ord("-")
        at += 1
        rest = np.uint64(0) - rest
    size = 1
    smallest = np.uint64(10)
    while size < 20 and rest >= smallest:
        size += 1
        smallest *= np.uint64(10)
    for i in range(at + size - 1, at - 1, -1):
        rest, digit = rest // np.uint64(10), rest % np.uint64(10)
        out[i] = np.uint8(digit + np.uint64(48))
    return at + size


@register_jitable
def _microseconds(out: np.ndarray, at: int, ns: int) -> int:
    """Write ns as decimal microseconds with three decimals."""
    if ns < 0:
        out[at] = ord("-")
        at += 1
        ns = -ns
    at = _digits(out, at, ns // 1000)
    out[at] = ord(".")
    rest = ns % 1000
    out[at + 1] = np.uint8(48 + rest // 100)
    out[at + 2] = np.uint8(48 + rest // 10 % 10)
    out[at + 3] = np.uint8(48 + rest % 10)
    return at + 4


@register_jitable
def _args(out: np.ndarray, at: int, events: Events, rows: Rows, row: int) -> int:
    """Write args from columns; nothing if there are none."""
    opened = False
    for f in range(rows.key.size):
        value = rows.values[f, row]
        if value == -1:
            continue
        if opened:
            out[at] = ord(",")
            at += 1
        else:
            at = _text(out, at, events, _ARGS_KEY)
            out[at] = ord("{")
            at += 1
            opened = True
        at = _text(out, at, events, rows.key[f])
        at = _text(out, at, events, value) if rows.is_text[f] else _digits(out, at, value)
    if opened:
        out[at] = ord("}")
        at += 1
    return at


@register_jitable
def _span(out: np.ndarray, at: int, events: Events, span: int) -> int:
    low = events.at[span]
    return _copy(out, at, events.recorded, low, low + events.length[span])


@register_jitable
def _event(out: np.ndarray, at: int, events: Events, rows: Rows, row: int) -> int:
    """Write one row as an event, what was recorded of it before what columns say."""
    recorded = np.full(_NUM_ROLES, -1, dtype=np.int64)
    for span in range(events.first_span[row], events.first_span[row + 1]):
        recorded[events.role[span]] = span
    at = _text(out, at, events, _BEGIN)
    if recorded[CAT] >= 0:
        at = _span(out, at, events, recorded[CAT])
    else:
        at = _text(out, at, events, rows.category[row])
    at = _text(out, at, events, _NAME)
    at = _text(out, at, events, rows.name[row])
    at = _text(out, at, events, _PID)
    if recorded[PID] >= 0:
        at = _span(out, at, events, recorded[PID])
    else:
        at = _digits(out, at, rows.pid[row])
    at = _text(out, at, events, _TID)
    if recorded[TID] >= 0:
        at = _span(out, at, events, recorded[TID])
    else:
        at = _digits(out, at, rows.tid[row])
    at = _text(out, at, events, _TS)
    at = _microseconds(out, at, rows.start[row])
    at = _text(out, at, events, _DUR)
    at = _microseconds(out, at, rows.duration[row])
    for span in range(events.first_span[row], events.first_span[row + 1]):
        if events.role[span] == OTHER:
            at = _text(out, at, events, events.key[span])
            at = _span(out, at, events, span)
    if recorded[ARGS] >= 0:
        at = _text(out, at, events, _ARGS_KEY)
        at = _span(out, at, events, recorded[ARGS])
    else:
        at = _args(out, at, events, rows, row)
    return _text(out, at, events, _END)


@kernel
def write_events(events: Events, rows: Rows, low: int, high: int, out: np.ndarray) -> int:
    r"""Write ``events.order[low:high]`` as JSON objects, each after a comma and a new line.

    The very first event has no comma before it.

    Parameters
    ----------
    events, rows
        What is written. The first texts are ``{"ph":"X","cat":``, ``,"name":``,
        ``,"pid":``, ``,"tid":``, ``,"ts":``, ``,"dur":``, ``,"args":`` and ``}``.
    low, high
        Range of ``events.order``.
    out
        uint8: long enough for every text and span, ``FIXED_BYTES`` an event and
        ``BYTES_PER_NUMBER`` a number of its args.

    Returns
    -------
    int
        Bytes written. O(bytes).
    """
    at = 0
    for i in range(low, high):
        if i > 0:
            out[at] = ord(",")
            out[at + 1] = ord("\n")
            at += 2
        row = events.order[i]
        if row < 0:
            at = _span(out, at, events, -1 - row)
        else:
            at = _event(out, at, events, rows, row)
    return at
