"""Damaged files, ten thousand in the whole check: each is refused in one line, or read as another reader reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amounts import examples
from tests.fuzz.corpus import samples
from tests.fuzz.long import run_one

_NUM_INPUTS = examples(10_000)
_ROUNDS = 4  # so that one that fails leaves the others to be seen


@pytest.mark.parametrize("part", range(_ROUNDS))
@pytest.mark.parametrize("name", samples())
def test_damaged_files(name: str, part: int, tmp_path: Path) -> None:
    count = -(-_NUM_INPUTS // (len(samples()) * _ROUNDS))
    for number in range(part * count, (part + 1) * count):
        seed = f"{name}:{number}"
        try:
            run_one(seed, tmp_path)
        except BaseException as error:
            error.add_note(f"to see it again: python tests/fuzz/long.py 0 {seed}")
            raise
