"""Events of a Kineto trace, from the bytes of its JSON to columns of numbers.

What is read of one event goes to a small array of its own, ``work``, and from there to
the columns once it is known to be a node: few arrays are handed from function to
function, because each one costs time.

Where the objects of a list begin and end.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, called, inner, kernel
from nadi.kernels.json_tokens import (
    MAX_DEPTH,
    NOT_AN_INTEGER,
    byte_at,
    next_item,
    read_integer,
    read_microseconds,
    skip_value,
    string_end,
)
from nadi.kernels.strings import (
    END,
    make_words,
    number_of_text,
    put_into_slots,
    read_member,
    word_of_string,
)

EVENT_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ARGS = range(8)
# rows of ``Found.numbers``: the integers among the arguments come first
_INTEGERS = {
    "External id": "external_id", "Record function id": "rf_id", "Sequence number": "sequence",
    "correlation": "correlation", "device": "device", "stream": "stream", "bytes": "bytes",
}  # fmt: skip
_OTHERS = (
    "start", "duration", "event", "category", "pid", "pid_at", "pid_length", "tid", "tid_at",
    "tid_length", "name",
)  # fmt: skip
NUMBERS = {name: column for column, name in enumerate((*_INTEGERS.values(), *_OTHERS))}
# columns of ``Found.comm``: arguments that few events have, numbers first, then texts by span
_COMM_NUMBERS = {"In msg nelems": "in_nelems", "Src Rank": "src", "Dst Rank": "dst"}
_COMM_TEXTS = {"dtype": "dtype", "Collective name": "collective", "Process Group Name": "group"}
COMM_COLUMNS = {
    name: column
    for column, name in enumerate(
        ("row", *_COMM_NUMBERS.values(),
         *(f"{name}_{part}" for name in _COMM_TEXTS.values() for part in ("at", "length")))
    )
}  # fmt: skip
ARG_KEYS = (*_INTEGERS, *_COMM_NUMBERS, *_COMM_TEXTS)
_NUM_EVENT_KEYS = len(EVENT_KEYS)
NUM_INTEGERS = len(_INTEGERS)
_NUM_ODD = 1 + len(EVENT_KEYS) + len(ARG_KEYS)
_NUM_ARG_NUMBERS = len(_INTEGERS) + len(_COMM_NUMBERS)
_MAX_ELEMENTS = 2**56
NOT_A_NUMBER = -(2**63)  # a pid or tid that is a text, or larger than 64 bits
END_OF_TIME = 2**62  # ns; a sum of two times is an int64
# arguments of other vendors and versions that say the same
_SAME_ARGS = {"external id": "External id", "connection_id": "correlation"}

# codes of what is kept of an event; other keys are counted down from -1
ARGS, PID, TID, EVENT, CAT = range(5)
# added to a category's code if PyTorch writes another name today
OTHER_NAME = 32
# categories of events that are not read as nodes, after those that are
NO_CATEGORY, OF_THE_PROFILER, REDUNDANT, ARROW = range(100, 104)
# places in the state that goes in and out
_STATE = (
    "event", "row", "kept", "keys", "unknown", "comm", "own", "incomplete", "arrows", "instants",
    "is_full", "texts", "quoted_ids", "earliest", "latest",
)  # fmt: skip
# what cannot be used, and is counted: a whole event, the value of a key, that of an argument
ODD = ("event", *EVENT_KEYS, *(f"args.{key}" for key in ARG_KEYS))
STATE = {name: place for place, name in enumerate((*_STATE, *(f"odd {what}" for what in ODD)))}
(_S_EVENT, _S_ROW, _S_KEPT, _S_KEYS, _S_UNKNOWN, _S_COMM, _S_OWN, _S_INCOMPLETE, _S_ARROWS,
 _S_INSTANTS, _S_FULL, _S_TEXTS, _S_QUOTED, _S_EARLIEST, _S_LATEST, _S_ODD) = range(
    len(_STATE) + 1
)  # fmt: skip

# places in ``work``: a row of numbers, a row of comm, and what else matters
_START, _DURATION, _EVENT, _CATEGORY, _PID_VALUE, _, _, _TID_VALUE, _, _, _NAME_NUMBER = range(
    NUM_INTEGERS, len(NUMBERS)
)
_WIDTH, _COMM_WIDTH = len(NUMBERS), len(COMM_COLUMNS)
_COMM = _WIDTH
_COMM_INTEGERS = _COMM + 1 - NUM_INTEGERS
_COMM_SPANS = _COMM + 1 + len(_COMM_NUMBERS) - 2 * _NUM_ARG_NUMBERS
(_IS_COMPLETE, _IS_START, _CATEGORY_AT, _CATEGORY_LENGTH, _ARGS_AT, _ARGS_END, _TS_FLAG,
 _DUR_FLAG, _HAS_COMM, _NAME_AT, _NAME_LENGTH, _ODD_BITS, _IS_QUOTED) = range(
    _COMM + _COMM_WIDTH, _COMM + _COMM_WIDTH + 13
)  # fmt: skip
WORK_SIZE = _IS_QUOTED + 1
_PREVENTS_NODE = 1 | sum(1 << 1 + key for key in (_PH, _CAT, _NAME, _TS, _DUR))  # bits of ODD

_KEPT_FULL, _KEYS_FULL, _UNKNOWN_FULL, _TEXTS_FULL = range(
    3, 7
)  # counted from 1 as the arrays of ``FoundEvents``

_QUOTE, _OPEN, _CLOSE_LIST, _N = (ord(c) for c in '"{]n')
_ZERO, _NINE, _X, _S, _MINUS, _PLUS, _POINT, _LOWER_E = (ord(c) for c in "09Xs-+.e")

EVENT_WORDS = make_words({key: code for code, key in enumerate(EVENT_KEYS)})
ARG_CODES = {key: code for code, key in enumerate(ARG_KEYS)} | {
    key: ARG_KEYS.index(same) for key, same in _SAME_ARGS.items()
}
ARG_WORDS = make_words(ARG_CODES)


class FoundEvents(NamedTuple):
    """What is found in a list of events; arrays with room for more rows than are filled."""

    numbers: np.ndarray  # int64, shape (``len(NUMBERS)``, nodes)
    # int64, shape (rows, ``len(COMM_COLUMNS)``): one row per node that communicates
    comm: np.ndarray
    # int64, shape (rows, 4): the node's row, the code of the key (``EVENT``: a whole event that is
    # no node), and where the JSON value begins and how long it is
    kept: np.ndarray
    keys: np.ndarray  # int64, shape (keys, 2): the spans of keys that have no code
    unknown: np.ndarray  # int64, shape (rows, 2): the spans of categories that are not known
    # texts, slots: the different names, as for ``number_of_text``
    texts: np.ndarray
    slots: np.ndarray


class EventScan(NamedTuple):
    """What is read, and where it goes: what most functions here are given."""

    text: np.ndarray  # uint8, shape (bytes,): the file
    # events, args, categories: words: ``EVENT_WORDS``, ``ARG_WORDS``, and those of ``cat`` with
    # their codes
    events: np.ndarray
    args: np.ndarray
    categories: np.ndarray
    # int64, shape (processes, 2): pid, and the category of its events that state none. If there are
    # any, the categories that events state are all kept, because names change them.
    processes: np.ndarray
    found: FoundEvents  # filled on from what the state says; -1 in all slots
    work: np.ndarray  # int64, shape (``WORK_SIZE``,): space to work in
    stack: np.ndarray  # uint8, shape (``MAX_DEPTH``,): space to work in
    # int64, shape (``len(STATE)``,): how much is filled, and counts of what became no node, or
    # could not be used (``ODD``). Nodes start from ``earliest`` on, in ns as in the file, and end
    # by ``latest``. After a call that found no room, ``is_full`` is the number of the array that
    # needs some, counted from 1.
    state: np.ndarray


@inner
def _mark_odd(work: np.ndarray, what: int) -> None:
    """Note what of an event cannot be used: a place in ``ODD``."""
    work[_ODD_BITS] |= np.int64(1) << what


@called
def _read_number(text: np.ndarray, at: int, stack: np.ndarray) -> tuple[int, int, bool]:
    """Read an int64, also one in quotes; gives the byte after the value, and whether it is one."""
    is_text = text[at] == _QUOTE
    end, value, flag = read_integer(text, at + is_text)
    if flag == 0 and (not is_text or byte_at(text, end) == _QUOTE):
        return end + is_text, value, True
    return skip_value(text, at, stack), np.int64(-1), False


@inner
def _read_arg(text: np.ndarray, at: int, key: int, work: np.ndarray, stack: np.ndarray) -> int:
    """Read the value of a known argument."""
    if key < _NUM_ARG_NUMBERS:
        end, value, flag = read_integer(text, at)
        if flag != 0:
            end, value, is_number = _read_number(text, at, stack)
            if not is_number:
                _mark_odd(work, 1 + _NUM_EVENT_KEYS + key)
                return end
        if key < NUM_INTEGERS:
            work[key] = value
            return end
        if key == NUM_INTEGERS and (value < -1 or value >= _MAX_ELEMENTS):
            _mark_odd(work, 1 + _NUM_EVENT_KEYS + key)
            return end
        work[_COMM_INTEGERS + key] = value
    else:
        if text[at] != _QUOTE:
            _mark_odd(work, 1 + _NUM_EVENT_KEYS + key)
            return skip_value(text, at, stack)
        end = string_end(text, at + 1)
        if end < 0:
            return end
        end = (end >> 1) + 1
        work[_COMM_SPANS + 2 * key] = at + 1
        work[_COMM_SPANS + 2 * key + 1] = end - at - 2
    work[_HAS_COMM] = 1
    return end


@inner
def _read_args(
    text: np.ndarray, at: int, words: np.ndarray, work: np.ndarray, stack: np.ndarray
) -> int:
    """Read the object of arguments, or null."""
    for place in range(NUM_INTEGERS):
        work[place] = -1
    for place in range(_COMM, _COMM + _COMM_WIDTH):
        work[place] = -1
    work[_HAS_COMM] = 0
    work[_ARGS_AT] = at
    if text[at] != _OPEN:
        if text[at] != _N:
            _mark_odd(work, 1 + _ARGS)
        at = skip_value(text, at, stack)
        work[_ARGS_END] = at
        return at
    at += 1
    is_empty = True
    while True:
        at, key, _, _ = read_member(text, at, words, stack)
        if key == END:
            work[_ARGS_END] = at
            if is_empty:
                work[_ARGS_AT] = -1  # {} says nothing
            return at
        is_empty = False
        at = skip_value(text, at, stack) if key < 0 else _read_arg(text, at, key, work, stack)


@inner
def _read_id(text: np.ndarray, at: int, key: int, work: np.ndarray, stack: np.ndarray) -> int:
    """Read a pid or tid: a number, also one in quotes, or a text."""
    begin = at
    at, value, flag = read_integer(text, at)
    if flag != 0:
        at, value, is_number = _read_number(text, begin, stack)
        if at < 0:
            return at
        if not is_number:
            value = np.int64(NOT_A_NUMBER)
            if flag == NOT_AN_INTEGER and text[begin] != _QUOTE:
                _mark_odd(work, 1 + key)
        work[_IS_QUOTED] |= is_number
    place = _PID_VALUE if key == _PID else _TID_VALUE
    work[place] = value
    work[place + 1] = begin
    work[place + 2] = at - begin
    return at


@inner
def _read_text(
    text: np.ndarray, at: int, key: int, categories: np.ndarray, work: np.ndarray,
    stack: np.ndarray,
) -> int:  # fmt: skip
    """Read the phase, category or name."""
    if text[at] != _QUOTE:
        _mark_odd(work, 1 + key)
        return skip_value(text, at, stack)
    at += 1
    end = string_end(text, at)
    if end < 0:
        return end
    length = (end >> 1) - at
    if key == _NAME:
        work[_NAME_AT] = at
        work[_NAME_LENGTH] = length
    elif key == _CAT:
        category = word_of_string(text, at, end, categories, stack)
        work[_CATEGORY] = category if length > 0 else NO_CATEGORY
        work[_CATEGORY_AT] = at
        work[_CATEGORY_LENGTH] = length
    else:
        work[_IS_COMPLETE] = length == 1 and text[at] == _X
        work[_IS_START] = length == 1 and text[at] == _S
    return (end >> 1) + 1


@called
def _read_exponent(text: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Read microseconds with an exponent, such as 5e-05, as ns; gives them, and 0 if they are."""
    negative = text[at] == _MINUS
    at += negative
    value, scale, exponent, shift = 0.0, 0, 0, 0
    while at < end and (_ZERO <= text[at] <= _NINE or text[at] == _POINT):
        if text[at] == _POINT:
            shift = 1
        else:
            value = value * 10 + (text[at] - _ZERO)
            scale -= shift
        at += 1
    if at == end or (text[at] | 32) != _LOWER_E:
        return np.int64(-1), 1
    is_small = text[at + 1] == _MINUS
    for i in range(at + 1 + (text[at + 1] == _MINUS or text[at + 1] == _PLUS), end):
        exponent = min(exponent * 10 + (np.int64(text[i]) - _ZERO), 400)
    value = value * 10.0 ** (scale + 3 + (-exponent if is_small else exponent))
    if not value < END_OF_TIME:
        return np.int64(-1), 1
    ns = np.int64(value + 0.5)
    return -ns if negative else ns, 0


@inner
def _read_time(text: np.ndarray, at: int, key: int, work: np.ndarray, stack: np.ndarray) -> int:
    """Read ts or dur, also in quotes; what is no time matters only if the event becomes a node."""
    end, value, flag = read_microseconds(text, at)
    if flag != 0:
        is_text = text[at] == _QUOTE
        end = skip_value(text, at, stack)
        if end < 0:
            return end
        last, value, flag = read_microseconds(text, at + is_text)
        if flag == 0 and last + is_text != end:
            flag = 1
        elif flag != 0 and (is_text or text[at] == _MINUS or _ZERO <= text[at] <= _NINE):
            value, flag = _read_exponent(text, at + is_text, end - is_text)
    work[_START if key == _TS else _DURATION] = value
    work[_TS_FLAG if key == _TS else _DUR_FLAG] = flag
    return end


@inner
def _keep(kept: np.ndarray, state: np.ndarray, code: int, at: int, end: int) -> None:
    place = state[_S_KEPT]
    kept[place, 0] = state[_S_ROW]
    kept[place, 1] = code
    kept[place, 2] = at
    kept[place, 3] = end - at
    state[_S_KEPT] = place + 1


@called
def _keep_unknown(
    key_at: int, key_end: int, at: int, end: int, kept: np.ndarray, keys: np.ndarray,
    state: np.ndarray,
) -> None:  # fmt: skip
    """Keep the value of a key that is not known."""
    place = state[_S_KEYS]
    if place >= keys.shape[0]:
        state[_S_FULL] = _KEYS_FULL
        return
    if state[_S_KEPT] + 2 >= kept.shape[0]:  # two places: arguments and category, or the event
        state[_S_FULL] = _KEPT_FULL
        return
    keys[place, 0] = key_at
    keys[place, 1] = key_end - key_at
    state[_S_KEYS] = place + 1
    _keep(kept, state, -1 - place, at, end)


@inner
def _is_node(work: np.ndarray, processes: np.ndarray, state: np.ndarray) -> bool:
    """Tell whether the event is work of the program, and has a time."""
    if work[_IS_COMPLETE] == 0:
        return False
    if processes.shape[0] > 0:
        _take_category(work, processes)
    if not 0 <= work[_CATEGORY] < NO_CATEGORY:
        return False
    start, duration = work[_START], work[_DURATION]
    latest = state[_S_LATEST]
    if work[_TS_FLAG] != 0 or not state[_S_EARLIEST] <= start <= latest:
        _mark_odd(work, 1 + _TS)
    elif work[_DUR_FLAG] != 0 or not 0 <= duration <= latest - max(start, 0):
        _mark_odd(work, 1 + _DUR)
    return work[_ODD_BITS] & _PREVENTS_NODE == 0


@called
def _take_category(work: np.ndarray, processes: np.ndarray) -> None:
    """Give an event without a category that of its process, if there is one; keep any other."""
    if 0 <= work[_CATEGORY] < OTHER_NAME:
        work[_CATEGORY] += OTHER_NAME
    if work[_CATEGORY] != NO_CATEGORY:
        return
    for i in range(processes.shape[0]):
        if processes[i, 0] == work[_PID_VALUE]:
            work[_CATEGORY] = processes[i, 1] + OTHER_NAME
            return


@called
def _count_odd(work: np.ndarray, state: np.ndarray) -> None:
    for what in range(_NUM_ODD):
        state[_S_ODD + what] += (work[_ODD_BITS] >> what) & 1


@inner
def _add_node(work: np.ndarray, found: FoundEvents, state: np.ndarray) -> None:
    row = state[_S_ROW]
    work[_EVENT] = state[_S_EVENT]
    if work[_CATEGORY] >= OTHER_NAME:
        work[_CATEGORY] -= OTHER_NAME
        begin, length = work[_CATEGORY_AT], work[_CATEGORY_LENGTH]
        quote = np.int64(length > 0)  # without a category the span is empty
        _keep(found.kept, state, CAT, begin - quote, begin + length + quote)
    state[_S_QUOTED] |= work[_IS_QUOTED]
    for column in range(_WIDTH):
        found.numbers[column, row] = work[column]
    if work[_ARGS_AT] >= 0:
        _keep(found.kept, state, ARGS, work[_ARGS_AT], work[_ARGS_END])
    if work[_HAS_COMM] != 0:
        work[_COMM] = row
        for column in range(_COMM_WIDTH):
            found.comm[state[_S_COMM], column] = work[_COMM + column]
        state[_S_COMM] += 1
    state[_S_ROW] = row + 1


@called
def _count_other(work: np.ndarray, unknown: np.ndarray, state: np.ndarray) -> None:
    """Count an event that is no node by the reason."""
    category = work[_CATEGORY]
    if work[_IS_COMPLETE] != 0:
        if category == OF_THE_PROFILER:
            state[_S_OWN] += 1
        elif not 0 <= category < NO_CATEGORY:
            unknown[state[_S_UNKNOWN], 0] = work[_CATEGORY_AT]
            unknown[state[_S_UNKNOWN], 1] = work[_CATEGORY_LENGTH]
            state[_S_UNKNOWN] += 1
    elif 0 <= category < NO_CATEGORY:
        state[_S_INCOMPLETE] += 1
    elif category == ARROW:
        state[_S_ARROWS] += work[_IS_START]
    elif category != NO_CATEGORY and category != REDUNDANT:
        state[_S_INSTANTS] += 1


@inner
def _begin_event(work: np.ndarray, at: int) -> None:
    for place in range(WORK_SIZE):
        work[place] = -1
    work[_NAME_AT] = work[_CATEGORY_AT] = at  # empty texts, unless there are any
    work[_NAME_LENGTH] = work[_CATEGORY_LENGTH] = 0
    work[_CATEGORY] = NO_CATEGORY
    work[_IS_COMPLETE] = work[_IS_START] = work[_HAS_COMM] = 0
    work[_ODD_BITS] = work[_IS_QUOTED] = 0


@inner
def _read_event(scan: EventScan, at: int) -> int:
    """Read one event from its first byte; gives the byte after it."""
    text, found, work, stack = scan.text, scan.found, scan.work, scan.stack
    _begin_event(work, at)
    if text[at] != _OPEN:
        _mark_odd(work, 0)
        return skip_value(text, at, stack)
    at += 1
    while True:
        at, key, key_at, key_end = read_member(text, at, scan.events, stack)
        if key == END:
            return at
        if key < 0:
            begin = at
            at = skip_value(text, begin, stack)
            _keep_unknown(key_at, key_end, begin, at, found.kept, found.keys, scan.state)
        elif key <= _NAME:
            at = _read_text(text, at, key, scan.categories, work, stack)
        elif key <= _TID:
            at = _read_id(text, at, key, work, stack)
        elif key <= _DUR:
            at = _read_time(text, at, key, work, stack)
        else:
            at = _read_args(text, at, scan.args, work, stack)


@inner
def _full(found: FoundEvents, state: np.ndarray) -> int:
    """Tell which array, counted from 1, has no room for one more event; 0 if all have."""
    if state[_S_ROW] >= found.numbers.shape[1]:
        return 1
    if state[_S_COMM] >= found.comm.shape[0]:
        return 2
    if state[_S_KEPT] + 1 >= found.kept.shape[0]:
        return _KEPT_FULL
    if state[_S_UNKNOWN] >= found.unknown.shape[0]:
        return _UNKNOWN_FULL
    return _TEXTS_FULL if state[_S_TEXTS] >= found.texts.shape[0] else 0


@kernel
def scan_events(scan: EventScan, at: int, stop: int) -> int:
    """Read the events of a list until it ends, until ``stop``, or until there is no room.

    - ``scan``: What is read, and where it goes.
    - ``at``: Where to go on: after the opening bracket, or where the last call ended.
    - ``stop``: The first event that begins at this byte or later is not read any more.
    - Returns: The byte of the next event or of the closing bracket; or a failure. O(bytes).
    """
    scan = borrowed(scan)
    text, found, work, state = scan.text, scan.found, scan.work, scan.state
    put_into_slots(found.slots, found.texts, state[_S_TEXTS])
    state[_S_FULL] = 0
    while True:
        begin = next_item(text, at, state[_S_EVENT] == 0)
        if begin < 0 or text[begin] == _CLOSE_LIST:
            return begin
        if begin >= stop:
            return at
        num_kept, num_keys = state[_S_KEPT], state[_S_KEYS]
        state[_S_FULL] = _full(found, state)
        if state[_S_FULL] != 0:
            return at
        end = _read_event(scan, begin)
        if end < 0:
            return end
        if state[_S_FULL] != 0:
            state[_S_KEPT], state[_S_KEYS] = num_kept, num_keys
            return at
        if _is_node(work, scan.processes, state):
            count = state[_S_TEXTS]
            work[_NAME_NUMBER] = number_of_text(
                text, work[_NAME_AT], work[_NAME_LENGTH], found.slots, found.texts, count
            )
            state[_S_TEXTS] += work[_NAME_NUMBER] == count
            _add_node(work, found, state)
        else:
            state[_S_KEPT], state[_S_KEYS] = num_kept, num_keys
            _keep(found.kept, state, EVENT, begin, end)
            _count_other(work, found.unknown, state)
        if work[_ODD_BITS] != 0:
            _count_odd(work, state)
        state[_S_EVENT] += 1
        at = end


# members of arguments whose values are to be read, and such that have no place in a column
MEMBER_TO_READ, MEMBER_WITHOUT_COLUMN = -2, -1


class GivenMembers(NamedTuple):
    """Arguments of events whose values are known, so that their JSON need not be read again."""

    # int64, shape (events + 1,): event k has the members ``first[k]:first[k + 1]``
    first: np.ndarray
    # text, value: int64, shape (members,): a row of ``place``, and the number that it is
    text: np.ndarray
    value: np.ndarray
    # int64, shape (texts,): the row of ``Found.numbers`` that the number is for, or one of
    # ``MEMBER_TO_READ`` and ``MEMBER_WITHOUT_COLUMN``
    place: np.ndarray


class GivenEvents(NamedTuple):
    """Events in the order of a file, of which all is known but what some arguments say."""

    # int64, shape (8, events): rows of ``categories``, ``names`` and twice ``ids`` (pid and tid),
    # start and duration in ns, and where the arguments begin, -1 without any, and end
    events: np.ndarray
    # int64, shape (texts, 3): the code of each category, the number among the names of nodes or -1,
    # which is filled, and the value of each pid and tid; then begin and length of its text
    categories: np.ndarray
    names: np.ndarray
    ids: np.ndarray
    members: GivenMembers  # without any events, the arguments are read
    is_complete: bool  # whether they have durations


@inner
def _take_event(scan: EventScan, given: GivenEvents, row: int) -> int:
    """Take one event; gives what is negative if its arguments are broken."""
    work, events = scan.work, given.events
    _begin_event(work, 0)
    category, name = events[0, row], events[1, row]
    work[_CATEGORY] = given.categories[category, 0]
    work[_CATEGORY_AT] = given.categories[category, 1]
    work[_CATEGORY_LENGTH] = given.categories[category, 2]
    work[_NAME_AT] = given.names[name, 1]
    work[_NAME_LENGTH] = given.names[name, 2]
    for k in range(3):
        work[_PID_VALUE + k] = given.ids[events[2, row], k]
        work[_TID_VALUE + k] = given.ids[events[3, row], k]
    work[_START], work[_DURATION] = events[4, row], events[5, row]
    work[_TS_FLAG] = work[_DUR_FLAG] = 0
    work[_IS_COMPLETE] = given.is_complete
    if events[6, row] < 0:
        return 0
    if _take_members(given.members, row, work):
        work[_ARGS_AT], work[_ARGS_END] = events[6, row], events[7, row]
        return 0
    return _read_args(scan.text, events[6, row], scan.args, work, scan.stack)


@inner
def _take_members(members: GivenMembers, row: int, work: np.ndarray) -> bool:
    """Take the arguments of an event that are for columns; tells whether all could be."""
    if members.first.size == 0:
        return False
    for k in range(members.first[row], members.first[row + 1]):
        place = members.place[members.text[k]]
        if place == MEMBER_TO_READ:
            return False
        if place >= 0:
            work[place] = members.value[k]
    return True


@kernel
def take_events(scan: EventScan, given: GivenEvents, is_node: np.ndarray) -> int:
    """Take events whose members are known as :func:`scan_events` takes those that it reads.

    - ``scan``: As there, with room for all events; ``text`` has the texts and the arguments.
    - ``given``: The events.
    - ``is_node``: bool, shape (events,), filled: which are nodes. The others are counted, but where
      their text is stays open: it need not be written before.
    - Returns: 0, or a failure. O(bytes of arguments + events).
    """
    scan = borrowed(scan)
    found, work, state, names = scan.found, scan.work, scan.state, given.names
    for row in range(is_node.size):
        end = _take_event(scan, given, row)
        if end < 0:
            return end
        is_node[row] = _is_node(work, scan.processes, state)
        if is_node[row]:
            name = given.events[1, row]
            if names[name, 0] < 0:
                count = state[_S_TEXTS]
                names[name, 0] = count
                found.texts[count, 0] = 0
                found.texts[count, 1], found.texts[count, 2] = names[name, 1], names[name, 2]
                state[_S_TEXTS] = count + 1
            work[_NAME_NUMBER] = names[name, 0]
            _add_node(work, found, state)
        else:
            _count_other(work, found.unknown, state)
        if work[_ODD_BITS] != 0:
            _count_odd(work, state)
        state[_S_EVENT] += 1
    return 0


_CLOSE_LIST_OF_SPAN = ord("]")


@kernel
def event_spans(text: np.ndarray, at: int, is_first: bool, spans: np.ndarray) -> int:
    """Find the bytes of objects that were read before.

    - ``text``: uint8, shape (bytes,).
    - ``at``: The byte after the opening bracket, or that of the comma before the first object.
    - ``is_first``: Which of both it is.
    - ``spans``: int64, shape (objects, 2), filled: begin and exclusive end of each.
    - Returns: How many were found, or a failure. O(bytes).
    """
    stack = np.empty(MAX_DEPTH, dtype=np.uint8)
    for number in range(spans.shape[0]):
        begin = next_item(text, at, is_first and number == 0)
        if begin < 0:
            return int(begin)
        if text[begin] == _CLOSE_LIST_OF_SPAN:
            return number
        at = skip_value(text, begin, stack)
        if at < 0:
            return int(at)
        spans[number, 0] = begin
        spans[number, 1] = at
    return int(spans.shape[0])
