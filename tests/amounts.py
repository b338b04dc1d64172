"""How many examples tests of laws try: a share in short runs, all of them in ``.ci/run``."""

import os

__all__ = ["ALL", "examples"]

ALL = os.environ.get("NADI_TEST_ALL") == "1"
"""Whether all examples are tried; only then every case is sure to be among them."""
_SHARE = 1 if ALL else 5


def examples(count: int) -> int:
    """Give the number to try of those that a test asks for: with ``NADI_TEST_ALL=1`` all."""
    return max(count // _SHARE, min(count, 8))
