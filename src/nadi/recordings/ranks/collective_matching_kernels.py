"""What two sequences have in common, in order."""

from __future__ import annotations

from nadi.kernels.jit import inner, kernel
from nadi.trace.arrays import Ints

MOST_DIFFERENCES = 512  # that are looked for at a time


@kernel
def common_subsequence(a: Ints, b: Ints, furthest: Ints, partner: Ints) -> None:
    """Pair equal elements of two sequences in order, as many as can be.

    The greedy algorithm of Myers, "An O(ND) difference algorithm and its variations" (1986).
    After 512 differences the path that got furthest is kept and the search begins anew where
    it ended, so that the time is O(512 * (len(a) + len(b))) whatever they hold; the pairs are
    then no longer sure to be the most.

    - ``a``, ``b``: int64, shapes (n,) and (m,).
    - ``furthest``: int64, shape (513, 1027): work space; row d is how far along ``a`` paths with d
      differences came, by diagonal.
    - ``partner``: int64, shape (n,): set to the place in ``b`` of the equal element, or -1.
    """
    partner[:] = -1
    begin_a, begin_b = 0, 0
    while begin_a < a.size and begin_b < b.size:
        d, k = _search(a[begin_a:], b[begin_b:], furthest)
        if d < 0:
            return
        x = furthest[d, furthest.shape[1] // 2 + k]
        _trace_back(d, k, furthest, begin_b, partner[begin_a:])
        begin_a, begin_b = begin_a + x, begin_b + x - k


@inner
def _first_x(furthest: Ints, d: int, k: int) -> int:
    """Give how far along ``a`` the best path with d differences reaches diagonal k."""
    middle = furthest.shape[1] // 2 + k
    if d == 0:
        return 0
    if k == -d or (k != d and furthest[d - 1, middle - 1] < furthest[d - 1, middle + 1]):
        return furthest[d - 1, middle + 1]
    return furthest[d - 1, middle - 1] + 1


@inner
def _search(a: Ints, b: Ints, furthest: Ints) -> tuple[int, int]:
    """Find the differences and the diagonal of the path to both ends, or that got furthest.

    Both are -1 if no path stays within the sequences.
    """
    best, best_d, best_k = -1, -1, -1
    limit = furthest.shape[0] - 1
    for d in range(limit + 1):
        for k in range(-d, d + 1, 2):
            x = _first_x(furthest, d, k)
            while 0 <= x < a.size and 0 <= x - k < b.size and a[x] == b[x - k]:
                x += 1
            furthest[d, furthest.shape[1] // 2 + k] = x
            if x == a.size and x - k == b.size:
                return d, k
            # paths that left the sequences count for nothing
            inside = x <= a.size and 0 <= x - k <= b.size
            if d == limit and inside and 2 * x - k > best:
                best, best_d, best_k = 2 * x - k, d, k
    return best_d, best_k


@inner
def _trace_back(d: int, k: int, furthest: Ints, begin_b: int, partner: Ints) -> None:
    """Pair what a path with d differences that ends on diagonal k took as equal."""
    middle = furthest.shape[1] // 2
    while d >= 0:
        x = _first_x(furthest, d, k)
        for at in range(x, furthest[d, middle + k]):
            partner[at] = begin_b + at - k
        if k == -d or (
            k != d and furthest[d - 1, middle + k - 1] < furthest[d - 1, middle + k + 1]
        ):
            k += 1
        else:
            k -= 1
        d -= 1
