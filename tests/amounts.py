"""How many examples tests of laws try: a share in short runs, all of them in ``.ci/run``."""

import os

__all__ = ["examples"]

_SHARE = 1 if os.environ.get("NADI_TEST_ALL") == "1" else 3


def examples(count: int) -> int:
    """Give the number to try of those that a test asks for: with ``NADI_TEST_ALL=1`` all."""
    return max(count // _SHARE, min(count, 8))
