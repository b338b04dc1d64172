"""Names in public tables are texts: filters search them, and their memory is small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import nadi
from nadi.files.json_file import Texts
from nadi.trace import schema
from nadi.trace.arrays import numbered_texts, text_codes
from nadi.trace.tables.trace_tables import Table


def test_no_table_has_categories() -> None:
    tables = [value for value in vars(schema).values() if isinstance(value, Table)]
    assert len(tables) > 10
    kinds = {column.instance for table in tables for column in table.columns}
    assert pl.Categorical not in {type(kind) for kind in kinds}


def test_names_are_searched_in_filters(demo_run: nadi.bottlenecks.Run, tmp_path: Path) -> None:
    trace = demo_run.job.traces[0]
    named = trace.nodes.filter(pl.col("name").str.contains("^gloo:.*reduce"))
    assert named.height == int(trace.name_mask("^gloo:.*reduce").sum()) > 0
    assert trace.tensors.filter(pl.col("dtype").str.starts_with("float")).height
    assert trace.operands.filter(pl.col("type").str.contains("Tensor")).height
    resource = demo_run.replay.schedule().table["resource"]
    assert resource.str.starts_with("thread").any()
    nadi.write(trace, tmp_path / "rank.nadi")
    nadi.read(tmp_path / "rank.nadi").assert_equals(trace)


def test_many_equal_names_take_one_view_each() -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>"
    names = Texts(np.zeros(100_000, dtype=np.int32), (name,)).series()
    # what a copy takes of memory: the text is there once
    assert len(names.rechunk().to_frame().serialize()) < 20 * names.len()
    assert names.str.contains("AddFunctor").all()


def test_codes_of_equal_texts_are_equal() -> None:
    texts = pl.Series(["b", "a", "b", ""])
    first, second, third, last = text_codes(texts).tolist()
    assert first == third
    assert len({first, second, last}) == 3
    numbers, known = numbered_texts(texts)
    assert (numbers.tolist(), known) == ([0, 1, 0, 2], ["b", "a", ""])
    assert [array.size for array in map(np.array, numbered_texts(texts.head(0)))] == [0, 0]
