"""Arrow files whose columns need more than their buffers hold are refused before polars reads."""

from __future__ import annotations

import io
import struct
from datetime import date
from typing import Any, Literal

import polars as pl
import pytest

from nadi.files.native.arrow import bytes_claimed, read_metadata

FRAMES = {
    "integers": pl.DataFrame({
        "a": pl.Series([1, 2, 3], dtype=pl.Int64), "b": pl.Series([1, None, 3], dtype=pl.UInt8),
        "c": pl.Series([1, 2, 3], dtype=pl.Int16), "d": pl.Series([4, 5, 6], dtype=pl.UInt32),
    }),
    "reals": pl.DataFrame({
        "a": pl.Series([0.5, None], dtype=pl.Float64), "b": pl.Series([1, 2], dtype=pl.Float32),
    }),
    "bools": pl.DataFrame({"a": [True, None] * 9}),
    "texts": pl.DataFrame({"a": ["", "long " * 9, None], "b": [b"\0", b"x" * 40, None]}),
    "lists": pl.DataFrame({"a": [[1, 2], None, []], "b": [[["a"]], [[], ["b" * 30]], [None]]}),
    "categories": pl.DataFrame({
        "a": pl.Series(["x", None], dtype=pl.Categorical()),
        "b": pl.Series(["y;2", "x"], dtype=pl.Enum(["x", "y;2", "é"])),
        "c": [["q"], None],
    }),
    "without rows": pl.DataFrame(schema={
        "a": pl.Int64, "b": pl.String, "c": pl.List(pl.Int64), "d": pl.Enum(["x"]), "e": pl.Boolean,
        "f": pl.Categorical(),
    }),
    "without columns": pl.DataFrame(),
    "nulls": pl.DataFrame({"a": [None, None]}),
}  # fmt: skip
Compression = Literal["uncompressed", "lz4", "zstd"]


def arrow(frame: pl.DataFrame, compression: Compression = "uncompressed", **options: Any) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out, compression=compression, **options)
    return out.getvalue()


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("oldest", [True, False])
@pytest.mark.parametrize("name", FRAMES)
def test_what_polars_writes_is_taken(name: str, compression: Compression, oldest: bool) -> None:
    options: dict[str, Any] = {"compat_level": pl.CompatLevel.oldest()} if oldest else {}
    stored = arrow(FRAMES[name], compression, **options)
    assert pl.read_ipc(stored).equals(FRAMES[name])
    uncompressed = bytes_claimed(arrow(FRAMES[name], **options))
    assert bytes_claimed(stored) == uncompressed


def test_several_batches_are_taken() -> None:
    frame = pl.DataFrame({"a": range(1000), "b": [str(i) * 9 for i in range(1000)]})
    stored = arrow(frame, "zstd", record_batch_size=100)
    assert [batch.num_rows for batch in read_metadata(stored)[1]] == [100] * 10
    assert bytes_claimed(stored) >= 8 * 1000 + 16 * 1000


def test_metadata_are_those_of_the_frame() -> None:
    columns, (dictionary, rows) = read_metadata(arrow(FRAMES["categories"].drop("a"), "zstd"))
    assert [column.name for column in columns] == [b"b", b"c"]
    assert columns[0].index_bits == 8
    assert columns[0].dictionary == dictionary.dictionary
    assert columns[0].notes == ((b"_PL_ENUM_VALUES2", "1;x3;y;22;é".encode()),)
    assert rows.arrays == ((2, 0), (2, 1), (1, 0))
    assert (rows.dictionary, rows.num_rows, rows.is_compressed) == (-1, 2, True)


PAIR = struct.Struct("<qq")


@pytest.mark.parametrize(
    ("name", "before", "after", "reason"),
    [
        ("integers", PAIR.pack(3, 0), PAIR.pack(4, 0), "number of rows"),
        ("integers", PAIR.pack(3, 0), PAIR.pack(3, 4), "number of rows"),
        ("integers", PAIR.pack(3, 0), PAIR.pack(3, -1), "number of rows"),
        ("integers", PAIR.pack(3, 0), PAIR.pack(3, 1), "shorter than its column"),
        ("integers", PAIR.pack(0, 24), PAIR.pack(0, 23), "shorter than its column"),
        ("integers", PAIR.pack(0, 24), PAIR.pack(-8, 24), "outside of the Arrow file"),
        ("integers", PAIR.pack(0, 24), PAIR.pack(0, -1), "outside of the Arrow file"),
        ("integers", PAIR.pack(0, 24), PAIR.pack(0, 1 << 20), "outside of the Arrow file"),
        ("bools", PAIR.pack(64, 3), PAIR.pack(64, 2), "shorter than its column"),
        ("reals", PAIR.pack(64, 16), PAIR.pack(64, 15), "shorter than its column"),
        ("texts", PAIR.pack(64, 48), PAIR.pack(64, 47), "shorter than its column"),
        ("lists", PAIR.pack(64, 32), PAIR.pack(64, 31), "shorter than its column"),
        ("lists", PAIR.pack(3, 1), PAIR.pack(3, 4), "number of rows"),
        ("categories", b"1;x3;y;22;", b"1;x3;y;29;", "categories of a column"),
        ("categories", b"1;x3;y;22;", b"1;x3;y;2x;", "categories of a column"),
        ("categories", b"0;0;u32;", b"0;1;u32;", "categories of a column"),
        ("categories", b"0;0;u32;", b"0;-;u32;", "categories of a column"),
        ("categories", b"0;0;u32;", b"0;0;u33;", "categories of a column"),
    ],
)
def test_a_column_without_its_bytes_is_refused(
    name: str, before: bytes, after: bytes, reason: str
) -> None:
    stored = arrow(FRAMES[name]).replace(before, after)  # the schema is there twice
    with pytest.raises(ValueError, match=reason):
        bytes_claimed(stored)


def test_two_columns_of_one_name_are_refused() -> None:
    stored = arrow(pl.DataFrame({"first": [1], "secon": [2]})).replace(b"secon", b"first")
    with pytest.raises(ValueError, match="one name"):
        bytes_claimed(stored)


@pytest.mark.parametrize("values", [[date(2024, 1, 1)], [{"a": 1}]])
def test_types_that_no_table_has_are_refused(values: list[Any]) -> None:
    with pytest.raises(ValueError, match="type that Nadi does not write"):
        bytes_claimed(arrow(pl.DataFrame({"a": values})))


def test_every_shorter_file_is_refused() -> None:
    stored = arrow(FRAMES["categories"], "zstd")
    for size in range(len(stored)):
        with pytest.raises(ValueError, match="Arrow file"):
            bytes_claimed(stored[:size])
