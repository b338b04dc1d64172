"""Rows of embedding tables: what is read of them, what updates them, and what a cache serves."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.memory.placement.placed_steps import plain_step
from nadi.memory.placement.study import read_job_or_plan
from nadi.memory.table_lookups import RowCache, hit_shares
from nadi.models import network_job
from nadi.recordings.jobs import given_job

_RECORDED = Path(__file__).resolve().parents[3] / "shared/data/traces/gpu_dlrm8"


def _served(cache: RowCache, tables: list[tuple[int, int, int]]) -> list[float]:
    """Count row by row what the best rows of all tables serve; tables of (rows, width, lookups)."""
    counts, widths, _ = zip(*tables, strict=True)
    weights = [np.arange(1, count + 1) ** -cache.skew for count in counts]
    often = np.concatenate(
        [table[2] * one / one.sum() for table, one in zip(tables, weights, strict=True)]
    )
    number = np.repeat(np.arange(len(tables)), counts)
    width = np.repeat(widths, counts)
    rows = np.lexsort((width, number, -often))
    kept = rows[np.cumsum(width[rows]) <= cache.capacity]
    served = np.bincount(number[kept], often[kept], minlength=len(tables))
    return [float(one) / lookups for one, (_, _, lookups) in zip(served, tables, strict=True)]


@pytest.mark.parametrize("skew", [0.3, 0.8, 1.0, 1.05, 1.6])
@pytest.mark.parametrize("share", [0.003, 0.05, 0.4, 0.9])
def test_cache_serves_what_its_best_rows_do(skew: float, share: float) -> None:
    tables = [(40_000, 64, 500), (3_000, 64, 800), (9_000, 16, 20)]
    size, width, lookups = (np.array(column) for column in zip(*tables, strict=True))
    cache = RowCache(int(share * (size * width).sum()), skew)
    found = hit_shares(cache, size * width, width, lookups * width)
    assert found == pytest.approx(_served(cache, tables), abs=0.01)


def test_cache_of_all_serves_all_and_more_serves_more() -> None:
    size, width, read = np.array([64_000_000]), np.array([64]), np.array([6400])
    shares = [hit_shares(RowCache(1 << n, 1.1), size, width, read)[0] for n in range(6, 27)]
    assert shares[-1] == 1
    assert all(one < other for one, other in pairwise(shares[:-1]))
    assert hit_shares(RowCache(16_000_000, 0.0), size, width, read) == pytest.approx([0.25])


@pytest.mark.parametrize("ranks", [1, 4])
def test_generated_tables_are_read_by_the_rows_looked_up(ranks: int) -> None:
    job = network_job("dlrm-dcnv2", ranks=ranks, batch=16)
    tensors = plain_step(job, nadi.load_system("dgx-h100", ranks)).tensors
    lookups, width, itemsize = 214, 128, 2  # of a sample, by the file of the network
    tables = tensors.table.filter(pl.col("role") == "tables")
    rows = 16 * ranks * lookups
    assert tables["bytes"].sum() == 204_184_588 * width * itemsize
    assert tables["read"].sum() == 2 * rows * width * itemsize
    assert tables["written"].sum() == rows * width * itemsize
    assert sum(one.moved_rows for one in tensors.traces) == rows * (3 * width * itemsize + 2 * 4)


def test_generated_embeddings_are_read_by_the_rows_looked_up() -> None:
    plan = {"tp": 4, "inference": "prefill", "micro_batch": 2, "global_batch": 2, "sequence": 64}
    job = nadi.llm_job("llama3-8b", **plan)
    (one,) = plain_step(job, nadi.load_system("dgx-h100", 4)).tensors.traces
    (row,) = (one.trace.nodes["name"] == "embedding").arg_true().to_list()
    of_row = one.accesses.first == row
    weights = (one.table["role"] == "weights").to_numpy()[one.life]
    length = one.accesses.end - one.accesses.begin
    rows, width = 2 * 64, 4096 * 2  # a token each, of a rank's part of the vocabulary
    assert length[of_row & weights].tolist() == [rows * width]


def test_recorded_tables_are_read_by_the_rows_looked_up() -> None:
    if not _RECORDED.exists():
        pytest.skip(f"{_RECORDED} is not there")
    job = given_job(read_job_or_plan(str(_RECORDED), lambda _: None))
    system = nadi.load_system("dgx-h100", 8)
    table = plain_step(job, system).tensors.table
    for rank in range(8):
        with gzip.open(_RECORDED / f"host_{rank}.json.gz") as file:
            nodes = json.load(file)["nodes"]
        (lookup,) = (one for one in nodes if "lookup_adagrad" in one["name"])
        weights, indices, state = (lookup["inputs"][place] for place in (1, 11, 20))
        (bags,) = (one for one in lookup["input_shapes"][12:13])
        width = lookup["outputs"][0][3] * 4 // (bags[0] - 1)
        own = table.filter(pl.col("trace") == rank)
        of_tables = own.filter(pl.col("role") == "tables").row(0, named=True)
        assert of_tables["bytes"] == weights[3] * 4
        assert of_tables["read"] == 2 * indices[3] * width  # the backward reads what it changes
        assert of_tables["written"] == indices[3] * width
        of_state = own.filter(pl.col("bytes") == state[3] * 4, pl.col("role") == "optimizer")
        assert of_state["read"].to_list() == of_state["written"].to_list() == [indices[3] * width]
    cached = plain_step(job, system, RowCache(1 << 40, 1.0)).tensors
    assert cached.table.filter(pl.col("role") == "tables")["read"].sum() == 0
    assert [one.moved_rows for one in cached.traces] == [0] * 8
