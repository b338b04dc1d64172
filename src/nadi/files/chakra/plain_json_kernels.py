"""Chakra's nodes in JSON, written as the messages that an .et has of them.

Here is what programs commonly write, and nothing else: a node with anything besides, right or
wrong, is left to :mod:`nadi.files.chakra.json_messages`, which has all the rules. What is written
here are the same bytes that it would write.

Where the objects end of a file that holds several, one after the other.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, called, inner, kernel
from nadi.kernels.json_tokens import (
    byte_at,
    code_of,
    fail,
    literal_end,
    next_item,
    read_integer,
    skip_space,
    string_end,
    unescape,
)
from nadi.kernels.protobuf import int64, put_varint, uint64, varint_size
from nadi.kernels.strings import END, find_word, read_member

# why writing stopped: all is written; a node is left to others; it needs more room; no node
ALL_READ, LEFT, NO_ROOM, OTHER = range(4)
# failures besides those of JSON
_UNUSUAL, _FULL = 16, 17
# places in the state that goes in and out: bytes and nodes written
STATE = {"size": 0, "nodes": 1}
_SIZE, _NODES = range(2)
# of the fields of an object: which were seen, the last, and whether their codes ascend
_SEEN, _LAST, _ASCENDS = range(3)

_ID, _NAME, _KIND, _CTRL, _DATA, _START, _DURATION, _INPUTS, _OUTPUTS, _ATTRIBUTES = range(1, 11)
_NUM_CODES = 32
FIRST_OF_FEEDER = 16
# fields of values of attributes, those of lists come next; int64 takes any
_INT32, _UINT32, _UINT64, _BOOL, _STRING = 7, 11, 13, 27, 29
_ATTRIBUTE_NAME, _FIRST_VALUE = 1, 3  # fields of attributes
_VALUES = 1  # the field of lists
_DELIMITED = 2
_LARGEST_ID = 2**62
_LARGEST_MICROSECONDS = (2**63 - 1) // 1000
_SPARE = 64  # bytes: more than tags, lengths and a number take until room is looked for again
_LONGEST_KEY = 256
_QUOTE, _BACKSLASH, _OPEN, _OPEN_LIST, _CLOSE_LIST = (ord(c) for c in '"\\{[]')
_TRUE, _FALSE = ord("t"), ord("f")


class NodeWords(NamedTuple):
    """Tables of words (:func:`nadi.kernels.strings.make_words`), and what they stand for."""

    # node, attribute, operands: keys by the numbers of their fields; from ``FIRST_OF_FEEDER`` on
    # those of the feeder that become attributes
    node: np.ndarray
    attribute: np.ndarray
    operands: np.ndarray
    kinds: np.ndarray  # names of node types by their numbers
    # int64: of each key from ``FIRST_OF_FEEDER`` on, the field of an attribute's value
    types: np.ndarray


class _Work(NamedTuple):
    """What all functions here are given."""

    words: NodeWords
    out: np.ndarray
    state: np.ndarray
    # of the fields of a node, then of what is in it, where each begins and ends in ``out``, by
    # its code; and of those which were seen (a bit each), the last, and whether they ascend
    spans: np.ndarray
    fields: np.ndarray
    scratch: np.ndarray


@kernel
def write_nodes(
    text: np.ndarray, at: int, in_list: bool, is_first: bool, words: NodeWords,
    out: np.ndarray, state: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Write nodes as messages, each with its length before it.

    - ``text``: uint8: the whole file.
    - ``at``, ``is_first``: After the opening bracket of their list, or after the node before.
    - ``in_list``: Whether they stand in a list, and not one after the other up to the end of the
      file.
    - ``words``: Those of the nodes' form; of types only those that are written here.
    - ``out``: uint8: room for messages, filled on from what the state says.
    - ``state``: int64, shape (``len(STATE)``,).
    - Returns reason, position: ``ALL_READ`` and where the closing bracket or the end of the file
      is; ``LEFT`` or ``NO_ROOM`` and where the node begins; or ``OTHER`` and where something else
      stands than a node. O(bytes).
    """
    text = borrowed(text)
    work = _Work(
        borrowed(words),
        borrowed(out),
        borrowed(state),
        np.empty((2, 2 * _NUM_CODES), dtype=np.int64),
        np.empty((2, 3), dtype=np.int64),
        np.empty(_LONGEST_KEY, dtype=np.uint8),
    )
    while True:
        begin = next_item(text, at, is_first) if in_list else skip_space(text, at)
        if begin < 0:
            return OTHER, at
        if begin == text.size or (in_list and text[begin] == _CLOSE_LIST):
            return ALL_READ, begin
        if text[begin] != _OPEN:
            return OTHER, begin
        before = work.state[_SIZE]
        at = _put_node(text, begin, work)
        if at < 0:
            work.state[_SIZE] = before
            return NO_ROOM if code_of(at) == _FULL else LEFT, begin
        work.state[_NODES] += 1
        is_first = False


@inner
def _is_full(work: _Work, length: int) -> bool:
    return work.state[_SIZE] + length + _SPARE > work.out.size


@inner
def _byte(work: _Work, value: int) -> None:
    at = work.state[_SIZE]
    work.out[uint64(at)] = value
    work.state[_SIZE] = at + 1


@called
def _put(work: _Work, value: int) -> None:
    work.state[_SIZE] = put_varint(work.out, work.state[_SIZE], value)


@inner
def _begin(work: _Work, tag: int, reserved: int) -> int:
    """Write a tag and leave bytes for a length; gives where the content begins."""
    _byte(work, tag)
    work.state[_SIZE] += reserved
    return work.state[_SIZE]


@called
def _end(work: _Work, begin: int, reserved: int) -> None:
    """Write before a content how long it is, and move it if that takes other than expected."""
    out = work.out
    end = work.state[_SIZE]
    length = end - begin
    more = varint_size(length) - reserved
    if more > 0:
        for at in range(end - 1, begin - 1, -1):
            out[uint64(at + more)] = out[uint64(at)]
    elif more < 0:
        for at in range(begin, end):
            out[uint64(at + more)] = out[uint64(at)]
    put_varint(out, begin - reserved, length)
    work.state[_SIZE] = end + more


@called
def _put_node(text: np.ndarray, at: int, work: _Work) -> int:
    """Write a node; gives the byte after it, or a failure."""
    if _is_full(work, 0):
        return fail(_FULL, at)
    reserved = 2  # for a length from 128 to 16,383
    work.state[_SIZE] += reserved
    begin = work.state[_SIZE]
    at = _begin_fields(at, 0, work)
    while True:
        at, code, key_at, key_end = _next_field(text, at, 0, _NUM_CODES, work.words.node, work)
        if code == END:
            return _end_fields(at, begin, reserved, 0, work)
        if code < FIRST_OF_FEEDER:
            at = _put_field(text, at, code, work)
        else:
            at = _put_feeder_attribute(text, at, code - FIRST_OF_FEEDER, key_at, key_end, work)


@inner
def _begin_fields(at: int, depth: int, work: _Work) -> int:
    """Begin with the fields of an object at its opening brace; gives the byte after it."""
    work.fields[depth, _SEEN] = work.fields[depth, _LAST] = 0
    work.fields[depth, _ASCENDS] = 1
    return at + 1


@inner
def _next_field(
    text: np.ndarray, at: int, depth: int, most: int, words: np.ndarray, work: _Work
) -> tuple[int, int, int, int]:
    """Note where the field before ends, and read the key of the next one, as ``read_member``.

    Each may stand once, and of those from ``most`` on only one.
    """
    at, field, key_at, key_end = read_member(text, at, words, work.scratch)
    last = work.fields[depth, _LAST]
    work.spans[depth, 2 * last + 1] = work.state[_SIZE]
    if field == END:
        return at, END, key_at, key_end
    code, seen = min(field, most), work.fields[depth, _SEEN]
    if code < 0 or (seen >> code) & 1 != 0:
        return fail(_UNUSUAL, at), END, key_at, key_end
    work.fields[depth, _SEEN] = seen | int64(1) << code
    work.fields[depth, _ASCENDS] &= code > last
    work.fields[depth, _LAST] = code
    work.spans[depth, 2 * code] = work.state[_SIZE]
    return at, field, key_at, key_end


@inner
def _end_fields(at: int, begin: int, reserved: int, depth: int, work: _Work) -> int:
    """Put the fields of an object in order, and its length before them."""
    if at < 0:
        return at
    if work.fields[depth, _ASCENDS] == 0 and not _sort_fields(work, begin, depth):
        return fail(_FULL, at)
    _end(work, begin, reserved)
    return at


@called
def _sort_fields(work: _Work, begin: int, depth: int) -> bool:
    """Put fields in the order of their codes, if there is room to do so."""
    out = work.out
    end = work.state[_SIZE]
    if _is_full(work, end - begin):
        return False
    to, seen = end, work.fields[depth, _SEEN]
    for code in range(_NUM_CODES):
        if (seen >> code) & 1 != 0:
            for at in range(work.spans[depth, 2 * code], work.spans[depth, 2 * code + 1]):
                out[to] = out[at]
                to += 1
    for at in range(end - begin):
        out[begin + at] = out[end + at]
    return True


@inner
def _put_field(text: np.ndarray, at: int, code: int, work: _Work) -> int:
    if _is_full(work, 0):
        return fail(_FULL, at)
    if code == _ATTRIBUTES:
        return _put_attributes(text, at, work)
    if code == _INPUTS or code == _OUTPUTS:
        return _put_operands(text, at, code, work)
    if code == _NAME:
        return _put_text(text, at, _NAME << 3 | _DELIMITED, work)
    if code == _CTRL or code == _DATA:
        return _put_ids(text, at, code, work)
    if code == _KIND:
        return _put_kind(text, at, work)
    end, value = _whole_number(text, at)
    largest = _LARGEST_ID - 1 if code == _ID else _LARGEST_MICROSECONDS
    if end < 0 or value < 0 or value > largest:
        return fail(_UNUSUAL, at)
    _byte(work, code << 3)
    _put(work, value)
    return end


@inner
def _whole_number(text: np.ndarray, at: int) -> tuple[int, int]:
    """Read an integer, bare or as a text; gives the byte after it, or -1."""
    quoted = int64(byte_at(text, at) == _QUOTE)
    end, value, flag = read_integer(text, at + quoted)
    if flag != 0 or (quoted != 0 and byte_at(text, end) != _QUOTE):
        return int64(-1), int64(0)
    return end + quoted, value


@called
def _put_text(text: np.ndarray, at: int, tag: int, work: _Work) -> int:
    """Write a text with its tag, or nothing if it is empty."""
    if byte_at(text, at) != _QUOTE:
        return fail(_UNUSUAL, at)
    if byte_at(text, at + 1) == _QUOTE:
        return at + 2
    _byte(work, tag)
    return _put_content(text, at, work)


@called
def _put_content(text: np.ndarray, at: int, work: _Work) -> int:
    """Write the content of a JSON string after its length."""
    end = string_end(text, at + 1)
    if end < 0:
        return end
    begin, stop = at + 1, end >> 1
    length = stop - begin
    if _is_full(work, length):
        return fail(_FULL, at)
    out = work.out
    if end & 1 == 0:
        _put(work, length)
        to, of = uint64(work.state[_SIZE]), uint64(begin)
        for i in range(uint64(length)):
            out[to + i] = text[of + i]
        work.state[_SIZE] += length
    else:
        reserved = varint_size(length)
        content = work.state[_SIZE] + reserved
        work.state[_SIZE] = unescape(text, begin, stop, out, content)
        _end(work, content, reserved)
    return stop + 1


@inner
def _put_kind(text: np.ndarray, at: int, work: _Work) -> int:
    if byte_at(text, at) == _QUOTE:
        end = string_end(text, at + 1)
        if end < 0:
            return end
        value = find_word(text, at + 1, (end >> 1) - at - 1, work.words.kinds)
        if value < 0:
            return fail(_UNUSUAL, at)
        end = (end >> 1) + 1
    else:
        end, value, flag = read_integer(text, at)
        if flag != 0 or not _fits(_INT32, value):
            return fail(_UNUSUAL, at)
    _byte(work, _KIND << 3)
    _put(work, value)
    return end


@called
def _put_ids(text: np.ndarray, at: int, code: int, work: _Work) -> int:
    """Write a list of ids, or nothing if it is empty."""
    if byte_at(text, at) != _OPEN_LIST:
        return fail(_UNUSUAL, at)
    start = work.state[_SIZE]
    begin = _begin(work, code << 3 | _DELIMITED, 1)
    is_first = True
    at += 1
    while True:
        at = next_item(text, at, is_first)
        if at < 0:
            return at
        if text[at] == _CLOSE_LIST:
            break
        if _is_full(work, 0):
            return fail(_FULL, at)
        end, value = _whole_number(text, at)
        if end < 0 or value < 0 or value >= _LARGEST_ID:
            return fail(_UNUSUAL, at)
        _put(work, value)
        at = end
        is_first = False
    if is_first:
        work.state[_SIZE] = start
    else:
        _end(work, begin, 1)
    return at + 1


@called
def _put_operands(text: np.ndarray, at: int, code: int, work: _Work) -> int:
    """Write the texts that a node has of its inputs or outputs."""
    if byte_at(text, at) != _OPEN:
        return fail(_UNUSUAL, at)
    begin = _begin(work, code << 3 | _DELIMITED, 1)
    at = _begin_fields(at, 1, work)
    while True:
        at, field, _, _ = _next_field(text, at, 1, _NUM_CODES, work.words.operands, work)
        if field == END:
            return _end_fields(at, begin, 1, 1, work)
        at = _put_text(text, at, field << 3 | _DELIMITED, work)


@called
def _put_attributes(text: np.ndarray, at: int, work: _Work) -> int:
    if byte_at(text, at) != _OPEN_LIST:
        return fail(_UNUSUAL, at)
    is_first = True
    at += 1
    while True:
        at = next_item(text, at, is_first)
        if at < 0:
            return at
        if text[at] == _CLOSE_LIST:
            return at + 1
        at = _put_attribute(text, at, work)
        if at < 0:
            return at
        is_first = False


@inner
def _put_attribute(text: np.ndarray, at: int, work: _Work) -> int:
    """Write an attribute: its name, comment and value."""
    if byte_at(text, at) != _OPEN:
        return fail(_UNUSUAL, at)
    if _is_full(work, 0):
        return fail(_FULL, at)
    begin = _begin(work, _ATTRIBUTES << 3 | _DELIMITED, 1)
    at = _begin_fields(at, 1, work)
    while True:
        at, field, _, _ = _next_field(text, at, 1, _FIRST_VALUE, work.words.attribute, work)
        if field == END:
            return _end_fields(at, begin, 1, 1, work)
        if field < _FIRST_VALUE:
            at = _put_text(text, at, field << 3 | _DELIMITED, work)
        else:
            at = _put_value(text, at, field, work)


@inner
def _put_value(text: np.ndarray, at: int, field: int, work: _Work) -> int:
    """Write the value of an attribute with its tag."""
    is_list = field % 2 == 0
    _put(work, field << 3 | (_DELIMITED if is_list or field == _STRING else 0))
    return _put_list(text, at, field - 1, work) if is_list else _put_scalar(text, at, field, work)


@called
def _put_scalar(text: np.ndarray, at: int, field: int, work: _Work) -> int:
    first = byte_at(text, at)
    if field == _STRING:
        return _put_content(text, at, work) if first == _QUOTE else fail(_UNUSUAL, at)
    if field == _BOOL:
        if first != _TRUE and first != _FALSE:
            return fail(_UNUSUAL, at)
        _byte(work, int64(first == _TRUE))
        return literal_end(text, at)
    end, value = _whole_number(text, at)
    if end < 0 or not _fits(field, value):
        return fail(_UNUSUAL, at)
    _put(work, value)
    return end


@inner
def _fits(field: int, value: int) -> bool:
    if field == _INT32:
        return -(2**31) <= value < 2**31
    if field == _UINT32:
        return 0 <= value < 2**32
    return value >= 0 if field == _UINT64 else True


@called
def _put_list(text: np.ndarray, at: int, field: int, work: _Work) -> int:
    """Write ``{"values": [...]}`` after its length."""
    if byte_at(text, at) != _OPEN:
        return fail(_UNUSUAL, at)
    work.state[_SIZE] += 1
    begin = work.state[_SIZE]
    at, key, _, _ = read_member(text, at + 1, work.words.operands, work.scratch)
    if key != END:
        if key != _VALUES or byte_at(text, at) != _OPEN_LIST:
            return fail(_UNUSUAL, at)
        at = _put_items(text, at + 1, field, work)
        at, key, _, _ = read_member(text, at, work.words.operands, work.scratch)
        if key != END:
            return fail(_UNUSUAL, at)
    if at >= 0:
        _end(work, begin, 1)
    return at


@inner
def _put_items(text: np.ndarray, at: int, field: int, work: _Work) -> int:
    """Write the items of a list: numbers in one piece, texts each with a tag."""
    tag = _VALUES << 3 | _DELIMITED
    start = work.state[_SIZE]
    begin = start if field == _STRING else _begin(work, tag, 1)
    is_first = True
    while True:
        at = next_item(text, at, is_first)
        if at < 0:
            return at
        if text[at] == _CLOSE_LIST:
            break
        if _is_full(work, 0):
            return fail(_FULL, at)
        if field == _STRING:
            _byte(work, tag)
        at = _put_scalar(text, at, field, work)
        if at < 0:
            return at
        is_first = False
    if is_first:
        work.state[_SIZE] = start
    elif field != _STRING:
        _end(work, begin, 1)
    return at + 1


@called
def _put_feeder_attribute(
    text: np.ndarray, at: int, place: int, key_at: int, key_end: int, work: _Work
) -> int:
    """Write an attribute of which the feeder's JSON has the key and the value in the node."""
    if _is_full(work, key_end - key_at):
        return fail(_FULL, at)
    begin = _begin(work, _ATTRIBUTES << 3 | _DELIMITED, 1)
    _byte(work, _ATTRIBUTE_NAME << 3 | _DELIMITED)
    _put(work, key_end - key_at)
    for i in range(key_at, key_end):
        if text[i] == _BACKSLASH:
            return fail(_UNUSUAL, at)
        _byte(work, text[i])
    at = _put_value(text, at, work.words.types[place], work)
    if at >= 0:
        _end(work, begin, 1)
    return at


_CLOSE = 0x7D


@kernel
def find_objects(content: np.ndarray, ends: np.ndarray) -> int:
    """Find where each object that lies in no other one ends.

    - ``content``: uint8: JSON objects, with or without space between them.
    - ``ends``: int64, filled as far as it goes: the position after each object's last brace.
    - Returns: Number of objects. O(bytes). Of what is no JSON the objects mean nothing.
    """
    count = 0
    depth = 0
    in_text = False
    at = 0
    while at < content.size:
        byte = content[at]
        at += 1
        if in_text:
            if byte == _BACKSLASH:
                at += 1
            elif byte == _QUOTE:
                in_text = False
        elif byte == _QUOTE:
            in_text = True
        elif byte == _OPEN:
            depth += 1
        elif byte == _CLOSE:
            depth -= 1
            if depth == 0:
                if count < ends.size:
                    ends[count] = at
                count += 1
    return count
