"""Factors of algbw and busbw, as doc/PERFORMANCE.md of nccl-tests states them."""

from __future__ import annotations

import pytest

from nadi.systems.nccl.measured import nccl_tests_factors


@pytest.mark.parametrize(
    ("comm_type", "whole", "bus"),
    [
        ("all_reduce", 1, 2 * 7 / 8), ("all_gather", 8, 7 / 8), ("reduce_scatter", 1, 7 / 8),
        ("all_to_all", 1, 7 / 8), ("gather", 8, 7 / 8), ("scatter", 1, 7 / 8),
        ("broadcast", 1, 1.0), ("reduce", 1, 1.0), ("barrier", 1, 0.0),
    ],
)  # fmt: skip
def test_factors(comm_type: str, whole: int, bus: float) -> None:
    assert nccl_tests_factors(comm_type, 8) == (whole, bus)


def test_one_member_moves_nothing() -> None:
    assert nccl_tests_factors("all_gather", 1) == (1, 0.0)
    assert nccl_tests_factors("all_reduce", 0) == (1, 0.0)
