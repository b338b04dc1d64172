"""Tables of SQLite's files, read from their pages: as SQLite itself reads them, or refused."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.read_columns import MISSING
from nadi.files.sqlite_file import SqliteFile

NUMBERS = (0, 1, -1, 127, -128, 2**15, -(2**23), 2**31, -(2**47) - 1, 2**63 - 1, -(2**63) + 1)


def _database(page: int, *statements: tuple[str, Sequence[Sequence[Any]]]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"PRAGMA page_size = {page}")
        for statement, rows in statements:
            if rows:
                database.executemany(statement, rows)
            else:
                database.execute(statement)
        database.commit()
        return bytes(database.serialize())


def _opened(content: bytes) -> SqliteFile:
    raw = np.frombuffer(bytearray(content), dtype=np.uint8)
    return SqliteFile(RawFile("a.sqlite", raw, raw))


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_rows_are_those_that_sqlite_reads(page: int) -> None:
    drawn = random.Random(page)
    rows = [
        (key, drawn.choice((*NUMBERS, 1.5, "text", None)), drawn.random(),
         drawn.choice((None, 3, "é" * drawn.choice((0, 3, 200, 5_000)))), drawn.choice(NUMBERS))
        for key in drawn.sample(range(-(10**6), 10**6), 3_000)
    ]  # fmt: skip
    content = _database(
        page,
        ("CREATE TABLE t (key INTEGER PRIMARY KEY, odd, ratio REAL, text, last)", ()),
        ("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows),
        ("ALTER TABLE t ADD COLUMN later", ()),
        ("INSERT INTO t VALUES (10000000, 1, 2, 'x', 3, 4)", ()),
    )
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content)
        there = database.execute("SELECT * FROM t").fetchall()
    opened = _opened(content)
    assert opened.height("t") == len(there)
    read = opened.read("t", ["last", "key", "odd", "text", "later", "absent"])
    for column, name in ((0, "key"), (1, "odd"), (4, "last"), (5, "later")):
        wanted = [row[column] if type(row[column]) is int else MISSING for row in there]
        assert read.numbers(name).tolist() == wanted
    assert set(read.numbers("absent").tolist()) == {MISSING}
    texts = read.texts("text")
    assert [texts.unique[code] if code >= 0 else None for code in texts.codes] == [
        row[3] if type(row[3]) is str else None for row in there
    ]
    assert opened.read("absent", ["key"]).height == 0


def test_damaged_pages_are_refused_or_read_but_nothing_breaks() -> None:
    rows = [(number, "x" * (number % 700)) for number in range(300)]
    content = _database(
        512, ("CREATE TABLE t (number, text)", ()), ("INSERT INTO t VALUES (?, ?)", rows)
    )
    drawn, refused = random.Random(7), 0
    for _ in range(400):
        broken = bytearray(content)
        for _ in range(3):
            broken[drawn.randrange(100, len(broken))] = drawn.choice((0, 5, 13, 128, 255))
        try:
            read = _opened(bytes(broken)).read("t", ["number", "text"])
            read.numbers("number"), read.texts("text")
        except FormatError:
            refused += 1
    assert 20 < refused < 400


def test_pages_in_a_circle_are_refused() -> None:
    content = bytearray(_database(
        512, ("CREATE TABLE t (number)", ()), ("INSERT INTO t VALUES (?)", [(1,)] * 500)
    ))  # fmt: skip
    root = 512  # the second page, whose last child becomes itself
    assert content[root] == 5
    content[root + 8 : root + 12] = (2).to_bytes(4, "big")
    with pytest.raises(FormatError, match="pages of t are damaged"):
        _opened(bytes(content)).height("t")


def test_texts_in_another_encoding_are_refused() -> None:
    content = _database(512, ("PRAGMA encoding = 'UTF-16'", ()), ("CREATE TABLE t (a)", ()))
    with pytest.raises(FormatError, match="UTF-8"):
        _opened(content)


@pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
def test_generated_columns_are_refused(kind: str) -> None:
    """What is stored stands between the others, which were read one place too early."""
    content = _database(
        512, (f"CREATE TABLE t (a, b AS (a + 1) {kind}, c)", ()),
        ("INSERT INTO t VALUES (?, ?)", [(1, 2)]),
    )  # fmt: skip
    with pytest.raises(FormatError, match="generated columns"):
        _opened(content)
