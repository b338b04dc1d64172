"""How much tests try: 1/48 in short runs, all with NADI_TEST_ALL=1.

In ``.ci/run`` they try 1/4 with bounds checked, 1/12 of hostile files, and 1/6 of the rest.
"""

import ast
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

__all__ = ["ALL", "examples", "names_by_amounts", "some"]

_Case = TypeVar("_Case")

ALL = os.environ.get("NADI_TEST_ALL") == "1"
"""Whether everything is tried; only then every case is sure to be among it."""
_SHARE = 1 if ALL else int(os.environ.get("NADI_TEST_SHARE", "48"))
_LEAST = 6


def examples(count: int) -> int:
    """Give the number to try of those that a test asks for: with ``NADI_TEST_ALL=1`` all."""
    return max(count // _SHARE, min(count, _LEAST))


def some(cases: Iterable[_Case], *, of: int = 3, first: int = 0) -> list[_Case]:
    """Give every ``of``-th case from ``first`` on: with ``NADI_TEST_ALL=1`` all.

    Tests that go through the same recordings begin at different ones, so that each is among them.
    """
    step = min(of, _SHARE)
    return list(cases)[first % step :: step]


@cache
def names_by_amounts(module: Path) -> frozenset[str]:
    """Give the names in a module of tests whose values depend on how much is tried."""
    found = {"ALL", "examples", "some"}
    bound = [
        (names, mentioned)
        for statement in ast.parse(module.read_text()).body
        if (names := _bound_by(statement)) and (mentioned := _mentioned_in(statement))
    ]
    while more := set().union(*(names for names, mentioned in bound if mentioned & found)) - found:
        found |= more
    return frozenset(found)


def _bound_by(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return {one.id for one in ast.walk(statement)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}  # fmt: skip
    return set()


def _mentioned_in(statement: ast.stmt) -> set[str]:
    """Give the names that a statement reads, and the fixtures that its functions take."""
    names = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name)}
    return names | {one.arg for one in ast.walk(statement) if isinstance(one, ast.arg)}
