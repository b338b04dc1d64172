"""Which operations are the same on all ranks, and move together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.whatif.reordering.movable_units import find_units
from nadi.whatif.reordering.move_search import same_on_ranks
from nadi.whatif.reordering.operation_layout import OperationLayout
from tests.conftest import PairWriter


@pytest.mark.parametrize(
    ("of_ranks", "together"),
    [
        (("aab", "aab"), ["a0 a3", "a1 a4", "b2 b5"]),
        (("aba", "baa"), ["a0 a4", "b1 b3", "a2 a5"]),
        (("aab", "ab"), ["a0", "a1", "b2 b4", "a3"]),  # one rank has more of a
    ],
)
def test_the_kth_of_a_name_is_the_same_where_all_ranks_have_as_many(
    tmp_path: Path, of_ranks: tuple[str, str], together: list[str]
) -> None:
    for rank, names in enumerate(of_ranks):
        pair = PairWriter(tmp_path)
        pair.device_keys["distributedInfo"] = {"rank": rank, "world_size": 2, "pg_config": []}
        for number, name in enumerate(names):
            pair.op(f"aten::{name}", 20 * number, 10)
        for node in pair.nodes:
            node["pid"] = rank
        pair.write(f"_{rank}")
    graph = nadi.build_graph(nadi.load_job(tmp_path))
    units = find_units(OperationLayout.of(graph), graph.time, 0)
    names = [graph.op_names[int(op)][-1] for op in units.op]
    groups = same_on_ranks(units, np.ones(units.op.size, dtype=np.bool_))
    assert [" ".join(f"{names[unit]}{unit}" for unit in group) for group in groups] == together
