"""How much tests try: a share in short runs, all of it where ``.ci/run`` asks for all."""

import os
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["ALL", "examples", "some"]

_Case = TypeVar("_Case")

ALL = os.environ.get("NADI_TEST_ALL") == "1"
"""Whether everything is tried; only then every case is sure to be among it."""
_SHARE = 1 if ALL else 8
_LEAST = 6


def examples(count: int) -> int:
    """Give the number to try of those that a test asks for: with ``NADI_TEST_ALL=1`` all."""
    return max(count // _SHARE, min(count, _LEAST))


def some(cases: Iterable[_Case], *, of: int = 3, first: int = 0) -> list[_Case]:
    """Give every ``of``-th case from ``first`` on: with ``NADI_TEST_ALL=1`` all.

    Tests that go through the same recordings begin at different ones, so that each is among them.
    """
    return list(cases) if ALL else list(cases)[first::of]
