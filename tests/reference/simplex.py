"""Linear programs in exact fractions: two phases of the simplex method, by Bland's rule."""

from __future__ import annotations

from fractions import Fraction

Row = list[Fraction]


def least_cost(costs: Row, equal: list[Row], sums: Row) -> Fraction | None:
    """Minimize ``costs @ x`` with ``equal @ x == sums`` and ``x >= 0``; None if there is no such x.

    The program must be bounded.
    """
    rows = [
        [*(row if total >= 0 else [-one for one in row]), abs(total)]
        for row, total in zip(equal, sums, strict=True)
    ]
    width, height = len(costs), len(rows)
    table = [
        [*row[:-1], *(Fraction(int(i == k)) for k in range(height)), row[-1]]
        for i, row in enumerate(rows)
    ]
    basis = [width + i for i in range(height)]
    artificial = [Fraction(0)] * width + [Fraction(1)] * height
    if _minimize(table, basis, artificial):
        return None
    for i, column in enumerate(basis):  # artificial columns that are 0 leave
        if column >= width:
            others = [k for k in range(width) if table[i][k]]
            if others:
                _pivot(table, basis, i, others[0])
    kept = [i for i, column in enumerate(basis) if column < width]
    table = [[*table[i][:width], table[i][-1]] for i in kept]
    return _minimize(table, [basis[i] for i in kept], costs)


def _minimize(table: list[Row], basis: list[int], costs: Row) -> Fraction:
    """Pivot until no column lowers the cost."""
    while True:
        for column in range(len(costs)):
            lowers = costs[column] - sum(
                (costs[b] * row[column] for b, row in zip(basis, table, strict=True)), Fraction(0)
            )
            if lowers < 0:
                break
        else:
            return sum(
                (costs[b] * row[-1] for b, row in zip(basis, table, strict=True)), Fraction(0)
            )
        ratios = [
            (row[-1] / row[column], basis[i], i) for i, row in enumerate(table) if row[column] > 0
        ]
        assert ratios, "the program is not bounded"
        _pivot(table, basis, min(ratios)[2], column)


def _pivot(table: list[Row], basis: list[int], at: int, column: int) -> None:
    pivot = table[at][column]
    table[at] = [one / pivot for one in table[at]]
    for i, row in enumerate(table):
        if i != at and row[column]:
            factor = row[column]
            table[i] = [a - factor * b for a, b in zip(row, table[at], strict=True)]
    basis[at] = column
