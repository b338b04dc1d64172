"""Imbalance of experts, on recordings made with known shares."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nadi
from tests.conftest import PairWriter

RECORDED = Path(__file__).parents[1] / "recordings" / "cpu_experts" / "device.json.gz"
TOKENS = {"SparseMoE_0": (62, 87, 58, 49), "SparseMoE_1": (61, 67, 95, 33)}
"""What the program printed: the tokens that each router sent to each expert, in both steps."""
ALL_TO_ALL = "ncclDevKernel_SendRecv(ncclDevComm*)"


def test_experts_in_modules_are_compared_by_layer(pair: PairWriter) -> None:
    sizes = {0: (10, 30, 20, 20), 1: (20, 20, 20, 20)}
    at = 100.0
    for layer, rows in sizes.items():
        pair.event(f"nn.Module: SparseMoE_{layer}", at, 400, "python_function")
        pair.event("nn.Module: Gate_0", at + 1, 20, "python_function")
        pair.op("aten::mm", at + 2, 10, **{"Input Dims": [[80, 8], [8, 4]]})
        for number, size in enumerate(rows):
            begin = at + 30 + 80 * number
            name = f"nn.Module: FeedForward_{4 * layer + number}"
            pair.event(name, begin, 2 + size, "python_function")
            pair.op("aten::addmm", begin + 1, size, **{"Input Dims": [[4], [size, 8], [8, 4]]})
        at += 500
    _, device = pair.write()
    table = nadi.analyses.expert_imbalance(nadi.load_job(device))
    rows = {row["layer"]: row for row in table.iter_rows(named=True)}
    first, second = rows["SparseMoE_0"], rows["SparseMoE_1"]
    assert (first["parts"], first["largest"]) == (4, "FeedForward_1")
    assert (first["size"], first["ratio"]) == (30, 1.5)
    assert (first["time_ns"], first["cost_ns"]) == (20_000, 10_000)
    assert (second["ratio"], second["cost_ns"]) == (1.0, 0)


def test_grouped_products_and_all_to_alls_are_compared_by_rank(tmp_path: Path) -> None:
    for rank, rows in enumerate((100, 300)):
        pair = PairWriter(tmp_path)
        pair.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        for step in range(2):
            at = 1_000.0 * step + 10
            pair.event(f"ProfilerStep#{step}", at - 5, 900, "user_annotation")
            pair.op("aten::_grouped_mm", at, rows, **{"Input Dims": [[rows, 8], [4, 8, 8], [4]]})
            number = 10 * (step + 1)
            pair.event("cudaLaunchKernel", at + 350, 2, "cuda_runtime", correlation=number)
            pair.event(ALL_TO_ALL, at + 360, 40, "kernel", correlation=number, device=0, stream=20,
                       **{"Process Group Name": "0", "Collective name": "all_to_allv",
                          "In split size": "[100, 300]", "dtype": "Float",
                          "In msg nelems": 400})  # fmt: skip
        pair.write(str(rank))
    table = nadi.analyses.expert_imbalance(nadi.load_job(*tmp_path.glob("device*")))
    rows_of = {row["source"]: row for row in table.iter_rows(named=True)}
    ranks, sent = rows_of["ranks"], rows_of["all-to-all"]
    assert (ranks["layer"], ranks["calls"], ranks["largest"]) == (
        "aten::_grouped_mm 0",
        4,
        "rank 1",
    )
    assert (ranks["size"], ranks["ratio"], ranks["cost_ns"]) == (600, 1.5, 200_000)
    assert (sent["largest"], sent["ratio"]) == ("rank 1", 1.5)
    assert sent["cost_ns"] == pytest.approx(sent["time_ns"] / 3)


def test_each_expert_of_a_recorded_model_has_its_tokens() -> None:
    job = nadi.load_job(RECORDED)
    table = nadi.analyses.expert_imbalance(job, by="expert")
    for layer, tokens in TOKENS.items():
        rows = table.filter(pl.col("layer") == layer)
        names = rows["part"].str.extract(r"_(\d+)$").cast(pl.Int64)
        number = (names - names.min()).to_list()
        # two products of each expert in each of two steps
        assert dict(zip(number, rows["size"], strict=True)) == {
            expert: 2 * 2 * count for expert, count in enumerate(tokens)
        }
        assert rows["share"].sum() == pytest.approx(100)
        assert rows["ratio"].max() == pytest.approx(max(tokens) * len(tokens) / sum(tokens))
    by_layer = nadi.analyses.expert_imbalance(job)
    assert dict(by_layer.select("layer", "ratio").iter_rows()) == pytest.approx(
        {layer: max(tokens) * len(tokens) / sum(tokens) for layer, tokens in TOKENS.items()}
    )
    with pytest.raises(nadi.errors.UsageError, match="layer, expert"):
        nadi.analyses.expert_imbalance(job, by="rank")


def test_a_recording_without_experts_says_so(demo_folder: Path) -> None:
    with pytest.raises(nadi.errors.InputError, match="no experts"):
        nadi.analyses.expert_imbalance(nadi.load_job(demo_folder))
