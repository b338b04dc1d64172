"""Texts by number: known words looked up, and each different text of many found once."""

from collections.abc import Mapping

import numpy as np

from nadi.kernels.jit import called, inner, kernel
from nadi.kernels.json_tokens import (
    load_word,
    next_member,
    skip_value,
    string_end,
    unescape,
    value_after_key,
)

_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)
_ONE = np.uint64(1)
_MASK = 2**64 - 1
_LONGEST_WORD = 24
_QUOTE, _OPEN = ord('"'), ord("{")

END = -2  # the code of the end of an object after its last member


def make_words(codes: Mapping[str, int]) -> np.ndarray:
    """Make a table of words of at most 24 bytes in which each has a slot of its own.

    - Returns: uint64, shape (slots + 1, 5): of each slot's word the first 8 bytes, those after them
      if it has more than 16, the last 8, the length (0: there is none), and the code; in the last
      row the factor and the shift that tell the slots. One array only, because each one handed on
      costs time.
    """
    bits = 2 + max(len(codes) - 1, 1).bit_length()
    keys = {word: _parts(word.encode()) for word in codes}
    factor = 0x9E3779B97F4A7C15
    while True:
        slots = {_slot(parts, factor, 64 - bits): word for word, parts in keys.items()}
        if len(slots) == len(keys):
            break
        factor = (factor * 0xD1342543DE82EF95 + 2) & _MASK | 1
    table = np.zeros(((1 << bits) + 1, 5), dtype=np.uint64)
    for slot, word in slots.items():
        table[slot] = (*keys[word], codes[word])
    table[-1, :2] = factor, 64 - bits
    return table


def _parts(word: bytes) -> tuple[int, int, int, int]:
    pieces = word[:8], word[8:16] if len(word) > 16 else b"", word[-8:]
    head, middle, tail = (int.from_bytes(piece, "little") for piece in pieces)
    return head, middle, tail, len(word)


def _slot(parts: tuple[int, int, int, int], factor: int, shift: int) -> int:
    head, _, tail, length = parts
    return ((head ^ (tail << 1) ^ length) & _MASK) * factor % 2**64 >> shift


@inner
def find_word(text: np.ndarray, at: int, length: int, words: np.ndarray) -> int:
    """Give the code of a word of one byte or more, or -1 if it is not in the table."""
    if length > _LONGEST_WORD or length == 0:
        return np.int64(-1)
    head = load_word(text, at, length)
    tail = load_word(text, at + length - 8, 8) if length > 8 else head
    last = words.shape[0] - 1
    mixed = (head ^ (tail << _ONE) ^ np.uint64(length)) * words[last, 0]
    slot = mixed >> words[last, 1]
    if words[slot, 3] != np.uint64(length) or words[slot, 0] != head or words[slot, 2] != tail:
        return np.int64(-1)
    if length > 16 and load_word(text, at + 8, 8) != words[slot, 1]:
        return np.int64(-1)
    return np.int64(words[slot, 4])


@called
def _escaped_word(
    text: np.ndarray, at: int, end: int, words: np.ndarray, scratch: np.ndarray
) -> int:
    length = unescape(text, at, end, scratch, 0)
    return find_word(scratch, 0, length, words) if length >= 0 else np.int64(-1)


@called
def word_of_string(
    text: np.ndarray, at: int, end: int, words: np.ndarray, scratch: np.ndarray
) -> int:
    """Give the code of a string's word, or -1.

    - ``text``, ``at``: Where the string begins, after its quote.
    - ``end``: As :func:`nadi.kernels.json_tokens.string_end` gave it.
    - ``words``: Of :func:`make_words`.
    - ``scratch``: uint8, shape (bytes,): space for a word without its escapes.
    """
    if end & 1 == 0:
        return find_word(text, at, (end >> 1) - at, words)
    return _escaped_word(text, at, end >> 1, words, scratch)


@called
def read_member(
    text: np.ndarray, at: int, words: np.ndarray, scratch: np.ndarray
) -> tuple[int, int, int, int]:
    """Read an object's next key: what every loop over the members of an object begins with.

    A loop reads a member, returns at ``END``, and goes on from where the value ends. A failure
    ends it too, whether it is met here or is what reading the value gave.

    - ``text``: uint8, shape (bytes,).
    - ``at``: After the opening brace, or after the value of the member before; or a failure.
    - ``words``, ``scratch``: As for :func:`word_of_string`.
    - Returns at: The byte of the value; or of ``END`` the byte after the closing brace, or a
      failure.
    - and key: The key's code, -1 if it is not among the words, ``END`` if the object ends here.
    - and key_at, key_end: Where the key begins and ends.
    """
    if at >= 0:
        at = next_member(text, at, text[at - 1] == _OPEN)  # no value ends in a brace that opens
    if at < 0 or text[at] != _QUOTE:
        return at + 1 if at >= 0 else at, END, at, at
    key_at = at + 1
    end = string_end(text, key_at)
    if end < 0:
        return end, END, at, at
    key = word_of_string(text, key_at, end, words, scratch)
    at = value_after_key(text, (end >> 1) + 1)
    return at, key if at >= 0 else np.int64(END), key_at, end >> 1


@called
def skip_string_or_value(text: np.ndarray, at: int, stack: np.ndarray) -> tuple[int, int]:
    """Skip any value.

    - Returns at, end: The byte after it, or a failure; of a string where it ends as
      :func:`nadi.kernels.json_tokens.string_end` gives it, of others the byte after it.
    """
    if text[at] != _QUOTE:
        at = skip_value(text, at, stack)
        return at, at
    end = string_end(text, at + 1)
    return end if end < 0 else (end >> 1) + 1, end


@inner
def _hash(text: np.ndarray, at: int, length: int) -> int:
    """Give a number, uint64, that is nearly always another for other bytes."""
    value = np.uint64(length)
    left = length
    while left > 0:
        value = (value ^ load_word(text, at, left)) * _FACTOR
        value ^= value >> _SHIFT
        at += 8
        left -= 8
    return value


@inner
def _equal(text: np.ndarray, a: int, b: int, length: int) -> bool:
    """Tell whether two spans of a length have the same bytes."""
    while length > 0:
        if load_word(text, a, length) != load_word(text, b, length):
            return False
        a += 8
        b += 8
        length -= 8
    return True


@called
def number_of_text(
    text: np.ndarray, at: int, length: int, slots: np.ndarray, texts: np.ndarray, count: int
) -> int:
    """Give the number of a span among different texts, met before or not.

    - ``text``, ``at``, ``length``: The span.
    - ``slots``: int32, shape (a power of two,): -1, or the number of the text in each.
    - ``texts``: int64, shape (at most half of the slots, 3): of each text its hash, where it begins
      first, and its bytes; there is room for one more.
    - ``count``: How many texts there are: the number of one that was not met before.
    """
    value = np.int64(_hash(text, at, length))
    mask = slots.size - 1
    slot = value & mask
    while slots[slot] >= 0:
        code = np.int64(slots[slot])
        same = texts[code, 0] == value and texts[code, 2] == length
        if same and _equal(text, texts[code, 1], at, length):
            return code
        slot = (slot + 1) & mask
    texts[count, 0] = value
    texts[count, 1] = at
    texts[count, 2] = length
    slots[slot] = count
    return np.int64(count)


@inner
def put_into_slots(slots: np.ndarray, texts: np.ndarray, count: int) -> None:
    """Put texts that have numbers into slots that are all free, as after there were too few."""
    mask = slots.size - 1
    for code in range(count):
        slot = texts[code, 0] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = code


@kernel
def _intern(
    text: np.ndarray,
    at: np.ndarray,
    length: np.ndarray,
    slots: np.ndarray,
    texts: np.ndarray,
    codes: np.ndarray,
    first: np.ndarray,
    state: np.ndarray,
) -> int:
    """Give numbers to different spans; go on after a stop because ``slots`` was half full.

    - ``text``, ``at``, ``length``, ``codes``: As for :func:`intern_spans`.
    - ``slots``, ``texts``: As for :func:`number_of_text`; all slots are free.
    - ``first``: int64, shape (half of the slots,): the row of each different span.
    - ``state``: int64, shape (2,): rows done, and different spans found.
    - Returns: 1 if all rows are done, 0 if there is no more space. O(bytes of the spans).
    """
    row, count = state[0], state[1]
    put_into_slots(slots, texts, count)
    while row < at.size and count < first.size:
        code = number_of_text(text, at[row], np.int64(length[row]), slots, texts, count)
        if code == count:
            first[count] = row
            count += 1
        codes[row] = code
        row += 1
    state[0], state[1] = row, count
    return 1 if row == at.size else 0


def intern_spans(
    text: np.ndarray, at: np.ndarray, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give a number to each different span of a text, in the order in which they first stand.

    - ``text``: uint8, shape (bytes,).
    - ``at``, ``length``: int64, shape (spans,): where each begins, all within the text, and its
      bytes.
    - Returns tuple of arrays: int32, shape (spans,): the number of each; int64, shape (different
      spans,): the row in which each number first stands. O(bytes of the spans).
    """
    # columns of tables would be another type, to compile for anew
    at, length = np.ascontiguousarray(at), np.ascontiguousarray(length)
    codes = np.empty(at.size, dtype=np.int32)
    state = np.zeros(2, dtype=np.int64)
    room = 1 << 12
    texts, first = np.empty((room, 3), dtype=np.int64), np.empty(room, dtype=np.int64)
    while not _intern(
        text, at, length, np.full(2 * room, -1, np.int32), texts, codes, first, state
    ):
        room *= 4
        texts, first = np.resize(texts, (room, 3)), np.resize(first, room)
    return codes, first[: state[1]].copy()
