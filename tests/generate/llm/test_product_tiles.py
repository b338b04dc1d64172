"""Products in tiles beside the communication of tensor parallel ranks."""

from collections.abc import Sequence

import polars as pl
import pytest

import nadi
from nadi.errors import UsageError
from nadi.models.job_rows import Layout, Operand, Row, RowList, RowOperands, exchange
from nadi.models.llm.product_tiles import tiled
from nadi.trace.work import Work, gemm

SMALL = {"global_batch": 1, "sequence": 512}
TOKENS, WIDTH, TILES = 512, 64, 4


def rows_of(communication: str) -> list[Row]:
    """Make a product between two norms, gathered for or summed."""
    rows = RowList("forward")
    norm = Work("norm", 1, 2 * TOKENS * WIDTH)
    size = 2 * TOKENS * WIDTH
    product = gemm((1, TOKENS, WIDTH, WIDTH), 2 * (2 * TOKENS * WIDTH + WIDTH**2), "bfloat16")
    given = Operand("given", (TOKENS // TILES, WIDTH), "bfloat16")
    whole, out = (Operand(name, (TOKENS, WIDTH), "bfloat16") for name in ("whole", "out"))
    weights = Operand("weights", (WIDTH, WIDTH), "bfloat16", lasts=True, role="weights")
    rows.compute("before", 0, norm, RowOperands((), (given,)))
    if communication == "all_gather":
        found = exchange(Layout.TOKENS, Layout.WHOLE, size, TILES)
        assert found is not None
        rows.collective("gather", 0, "tp", *found, RowOperands((given,), (whole,)))
    rows.compute("product", 0, product, RowOperands((whole, weights), (out,)))
    if communication != "all_gather":
        rows.collective("sum", 0, "tp", communication, size, RowOperands((out,), (whole,)))
    rows.compute("after", 0, norm, RowOperands((whole,), ()))
    return rows.rows


def end_of(rows: Sequence[Row], product: float, exchanged: float) -> float:
    """Run rows on two streams; norms take no time, products and collectives in all as given."""
    parts = sum(row.work is None for row in rows)
    tiles = sum(row.work is not None and row.work.op_class == "gemm" for row in rows)
    ends: list[float] = []
    free: dict[int, float] = {}
    for row in rows:
        took = exchanged / parts if row.work is None else 0.0
        if row.work is not None and row.work.op_class == "gemm":
            took = product / tiles
        start = max([free.get(row.stream, 0.0), *(ends[one] for one in row.waits if one >= 0)])
        ends.append(start + took)
        free[row.stream] = ends[-1]
    return ends[-1]


@pytest.mark.parametrize("communication", ["all_gather", "reduce_scatter"])
def test_a_ring_hides_all_but_what_one_tile_waits_for(communication: str) -> None:
    rows = rows_of(communication)
    assert end_of(tiled(rows, "none", TILES), 4.0, 2.0) == 6.0
    cut = tiled(rows, "ring", TILES)
    assert end_of(cut, 4.0, 2.0) == 4.0  # of 4 products of 1, 3 hide up to 3
    assert end_of(cut, 4.0, 3.0) == 4.0
    assert end_of(cut, 4.0, 6.0) == 7.0


@pytest.mark.parametrize("communication", ["all_gather", "reduce_scatter", "all_reduce"])
def test_a_pipe_exposes_one_part_at_least(communication: str) -> None:
    cut = tiled(rows_of(communication), "pipe", TILES)
    assert end_of(cut, 4.0, 2.0) == 4.5
    assert end_of(cut, 4.0, 4.0) == 5.0
    assert end_of(cut, 4.0, 6.0) == 7.0
    if communication == "all_reduce":
        assert tiled(rows_of(communication), "ring", TILES) == cut


@pytest.mark.parametrize("overlap", ["ring", "pipe"])
@pytest.mark.parametrize("communication", ["all_gather", "reduce_scatter"])
def test_tiles_have_the_same_work_and_tensors(communication: str, overlap: str) -> None:
    rows = rows_of(communication)
    cut = tiled(rows, overlap, TILES)
    whole = next(row for row in rows if row.name == "product")
    tiles = [row for row in cut if row.name.startswith("product")]
    works = [row.work for row in tiles if row.work is not None]
    assert whole.work is not None
    assert sum(work.flops for work in works) == whole.work.flops
    weights = 2 * WIDTH**2  # which each reads
    assert sum(work.bytes for work in works) == whole.work.bytes + (TILES - 1) * weights
    written = [row.operands.outputs[0] for row in tiles]
    assert [one.offset for one in written] == [n * TOKENS // TILES * WIDTH for n in range(TILES)]
    read = [row.operands.inputs[0].storage for row in tiles]
    is_own = communication == "all_gather" and overlap == "ring"
    assert read == ["given" if is_own else "whole", *["whole"] * (TILES - 1)]
    moved, before = (sum(max(row.comm_bytes, 0) for row in one) for one in (cut, rows))
    assert moved == before


def test_a_job_has_tiles_where_its_plan_says_so() -> None:
    jobs = {
        how: nadi.llm_job("gpt3-125m", tp=4, overlap=how, **SMALL)
        for how in ("none", "ring", "pipe")
    }
    nodes = {how: job.traces[0].nodes for how, job in jobs.items()}
    flops = {how: table["flops"].clip(0).sum() for how, table in nodes.items()}
    assert flops["ring"] == flops["pipe"] == flops["none"]
    products = pl.col("name").cast(pl.String).str.contains(r"attention\.qkv(\.tile\d)?$")
    number = {how: table.filter(products).height for how, table in nodes.items()}
    assert number == {"none": 12, "ring": 48, "pipe": 48}
    alone = nadi.llm_job("gpt3-125m", tp=1, overlap="ring", **SMALL)
    assert not alone.traces[0].nodes["name"].cast(pl.String).str.contains("tile").any()


def test_tokens_that_cannot_be_cut_are_refused() -> None:
    with pytest.raises(UsageError, match="2 tokens of a micro-batch cannot be cut into 4 tiles"):
        nadi.llm_job("gpt3-125m", tp=4, overlap="pipe", inference="decode", global_batch=2)
