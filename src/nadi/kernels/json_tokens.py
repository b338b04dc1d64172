"""JSON read from its bytes, token by token: what the kernels of single formats are made of.

A position is a byte of the text. A function that goes on to another position gives
that, or a failure: a negative number which holds what is wrong and where
(:func:`failure_of`). Nothing recurses and nothing is read past the end.
"""

import numpy as np

from nadi.kernels.jit import (
    borrowed,
    called,
    count_trailing_zeros,
    inner,
    kernel,
    load_eight_bytes,
    special_lanes,
)

TRUNCATED, BAD_CHARACTER, BAD_NUMBER, BAD_ESCAPE, BAD_UTF8, TOO_DEEP = range(1, 7)
_FAILURES = 32  # more than there are, of kernels that add their own too
MAX_DEPTH = 500  # half of what Python's own recursion allows, which decodes single values

TOO_LARGE = 1  # an integer, but of more than 64 bits
NOT_AN_INTEGER = 2

_QUOTE, _BACKSLASH, _MINUS, _PLUS, _POINT = (ord(c) for c in '"\\-+.')
_COMMA, _COLON, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (ord(c) for c in ",:{}[]")
_ZERO, _FIVE, _NINE, _E, _LOWER_E, _U = (ord(c) for c in "059Eeu")
_TRUE, _FALSE, _NULL = (ord(c) for c in "tfn")
_SPACE, _TAB, _NEWLINE, _RETURN = 32, 9, 10, 13
_LANES = 16
# what stands for what after a backslash; 0 for what may not
_ESCAPED = np.zeros(256, dtype=np.uint8)
for _letter, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPED[_letter] = _meaning
_MAX_SAFE = (2**63 - 1) // 10 - 1


def failure_of(result: int) -> tuple[int, int]:
    """Give what went wrong and at which byte, of a result below 0."""
    at, code = divmod(-result - 1, _FAILURES)
    return code, at


@inner
def fail(code: int, at: int) -> int:
    """Make the result that says what is wrong and where."""
    return -(at * _FAILURES + code) - 1


@inner
def code_of(result: int) -> int:
    """Give what went wrong, of a result below 0, to other kernels."""
    return (-result - 1) % _FAILURES


@inner
def load_word(text: np.ndarray, at: int, length: int) -> int:
    """Give up to 8 bytes as a uint64, the first the lowest; those past ``length`` are 0."""
    if length >= 8:
        return load_eight_bytes(text, at)
    if at + 8 <= text.size:
        # 64 - 8 * length is from 8 to 64; shifting twice keeps it below 64
        shift = np.uint64(32 - 4 * length)
        return ((load_eight_bytes(text, at) << shift) << shift) >> shift >> shift
    word = np.uint64(0)
    for i in range(length):
        word |= np.uint64(text[at + i]) << np.uint64(8 * i)
    return word


@inner
def byte_at(text: np.ndarray, at: int) -> int:
    """Give a byte, or 0, which no JSON has, past the end."""
    return text[np.uint64(at)] if at < text.size else np.uint8(0)


@inner
def unexpected(text: np.ndarray, at: int) -> int:
    """Fail at a byte that does not belong there, or at the end if there is none."""
    return fail(TRUNCATED, text.size) if at >= text.size else fail(BAD_CHARACTER, at)


@inner
def skip_space(text: np.ndarray, at: int) -> int:
    """Go to the next byte that is no white space."""
    while at < text.size:
        c = text[np.uint64(at)]
        if c > _SPACE or (c != _SPACE and c != _NEWLINE and c != _RETURN and c != _TAB):
            break
        at += 1
    return at


@inner
def _hex4(text: np.ndarray, at: int) -> int:
    """Read four hexadecimal digits; -1 if they are not there."""
    if at + 4 > text.size:
        return -1
    value = 0
    for i in range(4):
        c = np.int64(text[at + i])
        lower = c | 32
        if _ZERO <= c <= _NINE:
            value = value * 16 + c - _ZERO
        elif 97 <= lower <= 102:
            value = value * 16 + lower - 87
        else:
            return -1
    return value


@called
def _code_point(text: np.ndarray, at: int) -> tuple[int, int]:
    r"""Read ``\uXXXX``, or two that make one; gives it (-1: wrong) and the byte after it."""
    first = _hex4(text, at + 2)
    if first < 0xD800 or first > 0xDFFF:
        return first, at + 6
    if first > 0xDBFF or byte_at(text, at + 6) != _BACKSLASH or byte_at(text, at + 7) != _U:
        return -1, at
    second = _hex4(text, at + 8)
    if second < 0xDC00 or second > 0xDFFF:
        return -1, at
    return 0x10000 + ((first - 0xD800) << 10) + second - 0xDC00, at + 12


@called
def _utf8_end(text: np.ndarray, at: int) -> int:
    """Give the byte after a character of two to four bytes, or -1 if it is not valid UTF-8."""
    first = np.int64(text[at])
    second = np.int64(byte_at(text, at + 1))
    if second & 0xC0 != 0x80:
        return -1
    if 0xC2 <= first <= 0xDF:
        return at + 2
    if np.int64(byte_at(text, at + 2)) & 0xC0 != 0x80:
        return -1
    if 0xE0 <= first <= 0xEF:
        overlong = first == 0xE0 and second < 0xA0
        surrogate = first == 0xED and second > 0x9F
        return -1 if overlong or surrogate else at + 3
    if 0xF0 <= first <= 0xF4 and np.int64(byte_at(text, at + 3)) & 0xC0 == 0x80:
        overlong = first == 0xF0 and second < 0x90
        beyond = first == 0xF4 and second > 0x8F
        return -1 if overlong or beyond else at + 4
    return -1


@called
def string_end(text: np.ndarray, at: int) -> int:
    """Go from the first byte in a string to its closing quote.

    Gives twice its position, plus one if the string has escapes.
    """
    escaped = 0
    while at < text.size:
        if at + _LANES <= text.size:
            found = special_lanes(text, at)
            if found == 0:
                at += _LANES
                continue
            at += count_trailing_zeros(found)
        c = text[np.uint64(at)]
        if c == _QUOTE:
            return 2 * at + escaped
        if c == _BACKSLASH:
            escaped = 1
            letter = byte_at(text, at + 1)
            if letter == _U:
                number, end = _code_point(text, at)
                if number < 0:
                    return fail(BAD_ESCAPE, at)
                at = end
            elif _ESCAPED[letter] != 0:
                at += 2
            else:
                return fail(BAD_ESCAPE, at)
        elif c < _SPACE:
            return fail(BAD_CHARACTER, at)
        elif c < 128:
            at += 1
        else:
            end = _utf8_end(text, at)
            if end < 0:
                return fail(BAD_UTF8, at)
            at = end
    return fail(TRUNCATED, text.size)


@called
def unescape(text: np.ndarray, at: int, end: int, out: np.ndarray, out_at: int) -> int:
    """Write a string without its escapes; gives where it ends in ``out``, or -1 if it is full.

    The string is one that :func:`string_end` passed; it never becomes longer.
    """
    if out_at + end - at > out.size:
        return -1
    while at < end:
        c = text[at]
        if c != _BACKSLASH:
            out[out_at] = c
            out_at += 1
            at += 1
        elif text[at + 1] != _U:
            out[out_at] = _ESCAPED[text[at + 1]]
            out_at += 1
            at += 2
        else:
            number, at = _code_point(text, at)
            if number < 0x80:
                out[out_at] = number
                out_at += 1
                continue
            num_more = 1 if number < 0x800 else 2 if number < 0x10000 else 3
            out[out_at] = (0xFF00 >> (num_more + 1)) & 0xFF | number >> (6 * num_more)
            for i in range(num_more):
                out[out_at + 1 + i] = 0x80 | (number >> (6 * (num_more - 1 - i))) & 0x3F
            out_at += num_more + 1
    return out_at


@inner
def _digits_end(text: np.ndarray, at: int) -> int:
    while at < text.size and _ZERO <= text[np.uint64(at)] <= _NINE:
        at += 1
    return at


@called
def _number_end(text: np.ndarray, at: int) -> int:
    """Go over a number."""
    if text[np.uint64(at)] == _MINUS:
        at += 1
    begin = at
    at = _digits_end(text, at)
    if at == begin:
        return unexpected(text, at)
    if text[begin] == _ZERO and at > begin + 1:
        return fail(BAD_NUMBER, begin)
    c = byte_at(text, at)
    if c == _POINT:
        begin = at + 1
        at = _digits_end(text, begin)
        if at == begin:
            return fail(BAD_NUMBER, at) if at < text.size else fail(TRUNCATED, at)
        c = byte_at(text, at)
    if c == _E or c == _LOWER_E:
        c = byte_at(text, at + 1)
        begin = at + 2 if c == _PLUS or c == _MINUS else at + 1
        at = _digits_end(text, begin)
        if at == begin:
            return fail(BAD_NUMBER, at) if at < text.size else fail(TRUNCATED, text.size)
    return at


@called
def literal_end(text: np.ndarray, at: int) -> int:
    """Go over true, false or null."""
    c = text[at]
    if c == _FALSE:
        at += 1  # alse
    elif c != _TRUE and c != _NULL:
        return fail(BAD_CHARACTER, at)
    if at + 4 > text.size:
        return fail(TRUNCATED, text.size)
    word = load_word(text, at, 4)
    if (
        (c == _TRUE and word == 0x65757274)
        or (c == _NULL and word == 0x6C6C756E)
        or (c == _FALSE and word == 0x65736C61)
    ):
        return at + 4
    return fail(BAD_CHARACTER, at)


@inner
def value_after_key(text: np.ndarray, at: int) -> int:
    """Go from the byte after a key's closing quote over the colon to its value."""
    if byte_at(text, at) != _COLON:
        at = skip_space(text, at)
        if byte_at(text, at) != _COLON:
            return unexpected(text, at)
    at = skip_space(text, at + 1)
    return at if at < text.size else fail(TRUNCATED, at)


@inner
def _skip_key(text: np.ndarray, at: int) -> int:
    """Go from a key's opening quote to its value."""
    if byte_at(text, at) != _QUOTE:
        return unexpected(text, at)
    end = string_end(text, at + 1)
    return end if end < 0 else value_after_key(text, (end >> 1) + 1)


@inner
def _skip_scalar(text: np.ndarray, at: int, c: int) -> int:
    """Go over a string, number or literal that begins with ``c``."""
    if c == _QUOTE:
        end = string_end(text, at + 1)
        return end if end < 0 else (end >> 1) + 1
    if c == _MINUS or _ZERO <= c <= _NINE:
        return _number_end(text, at)
    return unexpected(text, at) if at >= text.size else literal_end(text, at)


@called
def skip_value(text: np.ndarray, at: int, stack: np.ndarray) -> int:  # noqa: C901  one loop
    """Go over any value, checking that it is valid JSON.

    - ``text``: uint8, shape (bytes,).
    - ``at``: Where it begins.
    - ``stack``: uint8, shape (deepest nesting,): space to work in.
    """
    depth = 0
    while True:
        c = byte_at(text, at)
        if c == _OPEN or c == _OPEN_LIST:
            at = skip_space(text, at + 1)
            if byte_at(text, at) == c + 2:  # } after {, ] after [
                at += 1
            else:
                if depth == stack.size:
                    return fail(TOO_DEEP, at)
                stack[depth] = c
                depth += 1
                if c == _OPEN:
                    at = _skip_key(text, at)
                    if at < 0:
                        return at
                continue
        else:
            at = _skip_scalar(text, at, c)
            if at < 0:
                return at
        while True:  # after a value
            if depth == 0:
                return at
            c = byte_at(text, at)
            if c <= _SPACE:
                at = skip_space(text, at)
                c = byte_at(text, at)
            opened = stack[depth - 1]
            if c == _COMMA:
                at += 1
                if byte_at(text, at) <= _SPACE:
                    at = skip_space(text, at)
                if opened == _OPEN:
                    at = _skip_key(text, at)
                    if at < 0:
                        return at
                break
            if c != opened + 2:
                return unexpected(text, at)
            at += 1
            depth -= 1


@inner
def next_member(text: np.ndarray, at: int, is_first: bool) -> int:
    """Go to an object's next key, or to its closing brace.

    - ``at``: After the opening brace, or after the value of the member before.
    - ``is_first``: Whether it is the opening brace.
    """
    at = skip_space(text, at)
    if byte_at(text, at) == _CLOSE:
        return at
    if not is_first:
        if byte_at(text, at) != _COMMA:
            return unexpected(text, at)
        at = skip_space(text, at + 1)
    return at if byte_at(text, at) == _QUOTE else unexpected(text, at)


@inner
def next_item(text: np.ndarray, at: int, is_first: bool) -> int:
    """Go to a list's next value, or to its closing bracket; as :func:`next_member`."""
    at = skip_space(text, at)
    if byte_at(text, at) == _CLOSE_LIST:
        return at
    if not is_first:
        if byte_at(text, at) != _COMMA:
            return unexpected(text, at)
        at = skip_space(text, at + 1)
        if byte_at(text, at) == _CLOSE_LIST:
            return unexpected(text, at)
    return at if at < text.size else fail(TRUNCATED, at)


@called
def read_integer(text: np.ndarray, at: int) -> tuple[int, int, int]:
    """Read an int64.

    - Returns: The byte after it, or a failure; the number; 0, or ``TOO_LARGE`` or
      ``NOT_AN_INTEGER``, when the number is not told and the byte is that of the value.
    """
    begin = at
    negative = byte_at(text, at) == _MINUS
    if negative:
        at += 1
    value = np.int64(0)
    first = at
    flag = 0
    while at < text.size:
        c = text[np.uint64(at)]
        if not _ZERO <= c <= _NINE:
            break
        digit = np.int64(c) - _ZERO
        if value > _MAX_SAFE:
            limit = 8 if negative else 7
            if value > _MAX_SAFE + 1 or digit > limit:
                flag = TOO_LARGE
        value = value * 10 + digit if flag == 0 else value
        at += 1
    if at == first or (text[first] == _ZERO and at > first + 1):
        return begin, np.int64(0), NOT_AN_INTEGER
    c = byte_at(text, at)
    if c == _POINT or c == _E or c == _LOWER_E:
        return begin, np.int64(0), NOT_AN_INTEGER
    if flag != 0:
        return begin, np.int64(0), flag
    return at, -value if negative else value, 0


@called
def read_microseconds(text: np.ndarray, at: int) -> tuple[int, int, int]:
    """Read a decimal number of microseconds as int64 nanoseconds, without a float on the way.

    Digits past the nanosecond are rounded half away from zero.

    - Returns: The byte after it; the number; 0, or 1 if it is no number, has an exponent, or does
      not fit: then the byte is that of the value and the number -1.
    """
    begin = at
    negative = byte_at(text, at) == _MINUS
    if negative:
        at += 1
    value = np.int64(0)
    first = at
    decimals = -1
    while at < text.size:
        c = text[np.uint64(at)]
        if _ZERO <= c <= _NINE:
            if decimals < 3:
                if value > _MAX_SAFE:
                    return begin, np.int64(-1), 1
                value = value * 10 + (np.int64(c) - _ZERO)
                decimals += decimals >= 0
            else:
                if decimals == 3 and c >= _FIVE:
                    value += 1
                decimals = 4
        elif c == _POINT and decimals < 0 and at > first:
            decimals = 0
        else:
            break
        at += 1
    last = byte_at(text, at)
    if at == first or decimals == 0 or last == _POINT or last == _E or last == _LOWER_E:
        return begin, np.int64(-1), 1
    if text[first] == _ZERO and _ZERO <= byte_at(text, first + 1) <= _NINE:
        return begin, np.int64(-1), 1
    for _ in range(3 - max(decimals, 0)):
        if value > _MAX_SAFE:
            return begin, np.int64(-1), 1
        value *= 10
    return at, -value if negative else value, 0


@kernel
def read_key(text: np.ndarray, at: int, is_first: bool, out: np.ndarray) -> int:
    """Read a key of an object, for shells that walk its few members one by one.

    - ``text``, ``at``, ``is_first``: As for :func:`next_member`.
    - ``out``: int64, shape (2,), filled: where the key begins and ends; -1 if there is none left.
    - Returns: The byte of the value, or of the closing brace; or a failure.
    """
    text = borrowed(text)
    out[0] = out[1] = -1
    at = next_member(text, at, is_first)
    if at < 0 or text[at] == _CLOSE:
        return at
    end = string_end(text, at + 1)
    if end < 0:
        return end
    out[0], out[1] = at + 1, end >> 1
    return value_after_key(text, (end >> 1) + 1)


@kernel
def skip(text: np.ndarray, at: int) -> int:
    """Go over a value, from its first byte to the one after it; or give a failure."""
    return skip_value(borrowed(text), at, np.empty(MAX_DEPTH, dtype=np.uint8))
