"""How much tests try: 1/48 in short runs, all with NADI_TEST_ALL=1.

In ``.ci/run`` they try 1/4 with bounds checked, 1/12 of hostile files, and 1/6 of the rest.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["ALL", "examples", "some"]

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
