"""Which operation uses which memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import nadi
from nadi.simulation.accounts.memory_accounts import storage_uses
from nadi.trace.arrays import counted_texts


def test_uses_come_in_one_order(demo_folder: Path) -> None:
    """Else what is learned of a job would differ from run to run."""
    uses = storage_uses(nadi.read(demo_folder / "host_0.json.gz"))
    assert uses is not None
    assert np.lexsort((uses.storage, uses.row)).tolist() == list(range(uses.row.size))


def test_texts_that_are_equally_frequent_are_counted_by_name() -> None:
    counts = counted_texts(pl.Series(["b", "c", "a", "c"]))
    assert list(counts.items()) == [("c", 2), ("a", 1), ("b", 1)]
