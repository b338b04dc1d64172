"""Instructions of a pickle, looked at before Python reads it."""

import numpy as np

from nadi.kernels.jit import kernel
from nadi.kernels.protobuf import int64

_STOP, _MEMOIZE, _PUT, _LONG_PUT, _LONG, _LONGER = 46, 0x94, 113, 114, 0x8A, 0x8B
# bytes: counters, times and addresses have no more. Of longer ones, as many as one likes are equal
# in the hash by which dictionaries find them, and each is compared with all before it
_LONGEST_NUMBER = 9
_AHEAD = 256  # numbers of what is kept may be as far beyond how many there are


@kernel
def find_odd(text: np.ndarray, arguments: np.ndarray, lengths: np.ndarray) -> int:
    """Find the first instruction that makes no plain value, or where the pickle is broken.

    - ``text``: uint8, shape (bytes,).
    - ``arguments``, ``lengths``: int64, shape (256,): the bytes that follow each instruction, -1 if
      it is refused; and the bytes of its length if it states one, or 0.
    - Returns: Twice the byte where it stands, and 1 more if it is refused; twice the number of
      bytes if there is none before the end of the pickle. O(bytes).
    """
    at = begin = kept = 0
    while at < text.size:
        begin = at
        code = int64(text[at])
        at += 1
        if code == _STOP:
            return int(2 * text.size)
        if arguments[code] < 0:
            return int(2 * begin + 1)
        width = lengths[code]
        more = arguments[code]
        if width > text.size - at:
            return int(2 * begin)
        if width > 0:
            for k in range(width):
                more |= int64(text[at + k]) << 8 * k
            at += width
        if code in (_LONG, _LONGER) and not 0 <= more <= _LONGEST_NUMBER:
            return int(2 * begin + 1)
        if more < 0 or more > text.size - at:
            return int(2 * begin)
        at += more
        # Python makes a list for all numbers up to this one
        if code == _LONG_PUT:
            number = int64(0)
            for k in range(4):
                number |= int64(text[at - 4 + k]) << 8 * k
            if number > kept + _AHEAD:
                return int(2 * begin)
        kept += code in (_MEMOIZE, _PUT, _LONG_PUT)
    return int(2 * begin)
