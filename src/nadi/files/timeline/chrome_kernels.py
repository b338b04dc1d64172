"""Events of Chrome's trace format, written from columns and spans of bytes."""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, inner, kernel
from nadi.kernels.protobuf import uint64

# columns that every event has, in order; the others are its args
CATEGORY, NAME, PID, TID, START, DURATION = range(6)
NUM_FIXED = 6
# what a span of an event is: a fixed column as recorded, all its args, or another key
ARGS, OTHER = 6, 7
# what the values of a column are
TEXT, NUMBER, NANOSECONDS = range(3)
# upper bounds: of the punctuation of an event, and of a number
BYTES_PER_EVENT = 8
BYTES_PER_NUMBER = 24


class EventColumns(NamedTuple):
    """Events in order, in columns and spans of bytes."""

    # int64, shape (events,): a row; or ``-1 - span``, a span that is the whole event
    order: np.ndarray
    # int64, shape (columns, rows): first the fixed columns, then the args, of which -1 is left out
    values: np.ndarray
    # kind, prefix: uint8 and int64, shape (columns,): what the values are; the text before each
    kind: np.ndarray
    prefix: np.ndarray
    # head, args: the texts before an event and before all args, without a brace of these
    head: int
    args: int
    # int64, shape (rows + 1,): row r has the spans ``first_span[r]:first_span[r + 1]``
    first_span: np.ndarray
    # role, key: uint8 and int64, shape (spans,): what a span is, and the text before it if it is
    # another key
    role: np.ndarray
    key: np.ndarray
    # at, length: int64, shape (spans,): where it lies in ``recorded``. An empty one of a fixed
    # column leaves the column out.
    at: np.ndarray
    length: np.ndarray
    recorded: np.ndarray  # uint8: bytes that were read
    # texts, first_text: uint8, and int64 of shape (texts + 1,): text t is
    # ``texts[first_text[t]:first_text[t + 1]]``
    texts: np.ndarray
    first_text: np.ndarray


@inner
def _copy(out: np.ndarray, at: int, source: np.ndarray, low: int, high: int) -> int:
    for i in range(high - low):
        out[uint64(at + i)] = source[uint64(low + i)]
    return at + high - low


@inner
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


@inner
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


@inner
def _text(out: np.ndarray, at: int, events: EventColumns, number: int) -> int:
    return _copy(out, at, events.texts, events.first_text[number], events.first_text[number + 1])


@inner
def _span(out: np.ndarray, at: int, events: EventColumns, span: int) -> int:
    begin = events.at[span]
    return _copy(out, at, events.recorded, begin, begin + events.length[span])


@inner
def _value(out: np.ndarray, at: int, events: EventColumns, column: int, row: int) -> int:
    kind, value = events.kind[column], events.values[column, row]
    if kind == TEXT:
        return _text(out, at, events, value)
    if kind == NUMBER:
        return _digits(out, at, value)
    return _microseconds(out, at, value)


@inner
def _made_args(out: np.ndarray, at: int, events: EventColumns, row: int) -> int:
    """Write the columns of a row that have a value as an object, if there are any."""
    num_args = 0
    for c in range(NUM_FIXED, events.kind.size):
        if events.values[c, row] != -1:
            out[at] = ord(",") if num_args else ord("{")
            at = _text(out, at + 1, events, events.prefix[c])
            at = _value(out, at, events, c, row)
            num_args += 1
    if num_args:
        out[at] = ord("}")
        at += 1
    return at


@inner
def _event(out: np.ndarray, at: int, events: EventColumns, row: int, span_of: np.ndarray) -> int:
    """Write the event of a row; ``span_of`` is int64, shape (``OTHER + 1``,), to work in."""
    first_span, role = events.first_span, events.role
    span_of[:] = -1
    for span in range(first_span[row], first_span[row + 1]):
        span_of[role[span]] = span
    at = _text(out, at, events, events.head)
    for c in range(NUM_FIXED):
        if span_of[c] >= 0 and events.length[span_of[c]] == 0:
            continue  # a column that the recorded event does not have
        at = _text(out, at, events, events.prefix[c])
        if span_of[c] >= 0:
            at = _span(out, at, events, span_of[c])
        else:
            at = _value(out, at, events, c, row)
    for span in range(first_span[row], first_span[row + 1]):
        if role[span] == OTHER:
            at = _text(out, at, events, events.key[span])
            at = _span(out, at, events, span)
    if span_of[ARGS] >= 0:
        at = _text(out, at, events, events.args)
        at = _span(out, at, events, span_of[ARGS])
    else:
        before = _text(out, at, events, events.args)
        after = _made_args(out, before, events, row)
        at = after if after > before else at
    out[at] = ord("}")
    return at + 1


@kernel
def write_events(
    length: np.ndarray, events: EventColumns, low: int, high: int, out: np.ndarray
) -> int:
    """Write ``events.order[low:high]`` as JSON objects, a comma and a new line between two.

    - ``length``: int64, shape (events,), filled: the bytes of each object.
    - ``events``: What is written.
    - ``low``, ``high``: Range of ``events.order``; a comma stands before each but event 0.
    - ``out``: uint8: long enough for every text and span, ``BYTES_PER_EVENT`` an event and
      ``BYTES_PER_NUMBER`` a number.
    - Returns: Bytes written. O(bytes).
    """
    events = borrowed(events)
    span_of = np.empty(OTHER + 1, dtype=np.int64)
    at = 0
    for i in range(low, high):
        if i > 0:
            out[at], out[at + 1] = ord(","), ord("\n")
            at += 2
        row, begin = events.order[i], at
        is_row = row >= 0
        at = _event(out, at, events, row, span_of) if is_row else _span(out, at, events, -1 - row)
        length[i] = at - begin
    return at


@kernel
def write_args(
    length: np.ndarray, events: EventColumns, low: int, high: int, out: np.ndarray
) -> int:
    """Write what columns state as args of ``events.order[low:high]``, an object after the other.

    - ``length``: int64, shape (events,), filled: the bytes of each object, 0 without any.
    - ``events``, ``low``, ``high``, ``out``: As for :func:`write_events`.
    - Returns: Bytes written. O(bytes).
    """
    events = borrowed(events)
    at = 0
    for i in range(low, high):
        end = _made_args(out, at, events, events.order[i])
        length[i] = end - at
        at = end
    return at


@kernel
def write_objects(
    first: np.ndarray, text: np.ndarray, value: np.ndarray, has_value: np.ndarray,
    first_text: np.ndarray, texts: np.ndarray, out: np.ndarray, at: np.ndarray,
) -> None:  # fmt: skip
    """Write JSON objects of members, each a text and for some a number after it.

    - ``first``: int64, shape (objects + 1,): object k has the members ``first[k]:first[k + 1]``.
    - ``text``, ``value``, ``has_value``: int64, int64 and bool, shape (members,): the number of the
      text, and the number.
    - ``first_text``, ``texts``: As for :class:`EventColumns`.
    - ``out``: uint8: long enough for all texts, ``BYTES_PER_NUMBER`` a member and 2 an object.
    - ``at``: int64, shape (objects + 1,), filled: where each begins and the last one ends.
      O(bytes).
    """
    place = 0
    for k in range(first.size - 1):
        at[k] = place
        out[place] = ord("{")
        place += 1
        for member in range(first[k], first[k + 1]):
            if member > first[k]:
                out[place] = ord(",")
                place += 1
            number = text[member]
            place = _copy(out, place, texts, first_text[number], first_text[number + 1])
            if has_value[member]:
                place = _digits(out, place, value[member])
        out[place] = ord("}")
        place += 1
    at[first.size - 1] = place
