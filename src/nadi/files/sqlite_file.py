"""Read tables of a SQLite database as columns, straight from its pages.

SQLite itself only parses the declarations of tables. Its rows would come one at a time, which
takes longer than all that is done with them; and no view, trigger or extension of a file can run.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from nadi.errors import FormatError
from nadi.files import sqlite_kernels as kernels
from nadi.files.files import RawFile
from nadi.files.read_columns import ReadColumns
from nadi.trace.arrays import Ints

MAGIC = b"SQLite format 3\0"
_LOG = slice(18, 20)  # says that a log lies beside the database, which is not there in memory
_DEEPEST = 40  # levels of pages: a page has at least two below it
_UTF8 = 1
_HEADER = 100
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)


class SqliteFile:
    """The tables of a database."""

    def __init__(self, raw: RawFile) -> None:
        self._raw = raw
        head = raw.content[:_HEADER].tobytes()
        page = int.from_bytes(head[16:18], "big")
        self._page = 65536 if page == 1 else page
        self._num_pages = int.from_bytes(head[28:32], "big")
        size = self._num_pages * self._page
        if len(head) < _HEADER or raw.content.size < size:
            raise FormatError(
                raw.name, f"the database has {raw.content.size} bytes, but states {size}",
                "check whether the file was cut off",
            )  # fmt: skip
        self._usable = self._page - head[20]
        if self._page < 512 or self._page & self._page - 1 or self._usable < 480 or not size:
            raise self._broken("its header is not SQLite's")
        if int.from_bytes(head[56:60], "big") > _UTF8:
            raise self._broken("its texts are not in UTF-8")
        self._text = raw.content[:size]
        self._roots, self.columns, self._row_numbers = self._declared()

    def _declared(self) -> tuple[dict[str, int], dict[str, list[str]], dict[str, str]]:
        """Return the first page and the columns of each table, and the column that numbers rows."""
        content = bytearray(self._text)
        content[_LOG] = b"\1\1"
        roots, columns, row_numbers = {}, {}, {}
        try:
            with closing(sqlite3.connect(":memory:")) as database:
                database.text_factory = _decoded
                database.deserialize(bytes(content))
                database.set_authorizer(_allows)
                # a virtual table is a table, too, which an extension reads
                tables = database.execute(
                    "SELECT name, rootpage FROM sqlite_master "
                    "WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
                ).fetchall()
                for name, root in tables:
                    quoted = str(name).replace('"', '""')
                    declared = database.execute(f'PRAGMA table_xinfo("{quoted}")').fetchall()
                    if any(row[6] for row in declared):  # its pages have them, or have them not
                        raise self._broken("it has generated columns, which no exporter writes")
                    roots[name], columns[name] = root, [row[1] for row in declared]
                    keys = [row for row in declared if row[5]]
                    if len(keys) == 1 and str(keys[0][2]).upper() == "INTEGER":
                        row_numbers[name] = keys[0][1]
        except (sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
            what = str(error)
            raise self._broken(what if what.isprintable() else "not as SQLite writes it") from None
        return roots, columns, row_numbers

    def _broken(self, what: str) -> FormatError:
        return FormatError(
            self._raw.name, f"the database cannot be read: {what}", "export the report again"
        )

    def _leaves(self, table: str) -> tuple[Ints, int]:
        """Return the pages with rows of a table, and how many rows there are."""
        leaves = np.empty(self._num_pages, dtype=np.int64)
        stack, counts = np.empty((_DEEPEST, 2), dtype=np.int64), np.zeros(2, dtype=np.int64)
        root = self._roots[table]
        if type(root) is not int or not kernels.find_leaves(
            self._text, self._page, min(root, 2**32), leaves, stack, counts
        ):
            raise self._broken(f"the pages of {table} are damaged")
        return leaves[: counts[0]], int(counts[1])

    def height(self, table: str) -> int:
        """Return how many rows a table has; 0 if it is absent. O(pages)."""
        return self._leaves(table)[1] if table in self._roots else 0

    def read(self, table: str, wanted: Sequence[str]) -> ReadColumns:
        """Return some columns of a table, which has no rows if it is absent.

        - Raises FormatError if its pages are damaged. O(bytes).
        """
        if table not in self._roots:
            nothing = np.zeros((0, 0), dtype=np.int64)
            return ReadColumns(self._raw, {}, nothing, nothing.astype(np.int32), _decoded)
        leaves, num_rows = self._leaves(table)
        there = self.columns[table]
        numbers = {name: field for field, name in enumerate(one for one in wanted if one in there)}
        fields = np.array([numbers.get(self._row_numbers.get(table, ""), -1),
                           *(numbers.get(name, -1) for name in there)])  # fmt: skip
        values = np.empty((len(numbers), num_rows), dtype=np.int64)
        lengths = np.empty(values.shape, dtype=np.int32)
        text, room = self._text, 0
        while True:
            needed = kernels.read_rows(
                text, self._num_pages, self._page, self._usable, leaves, fields, values, lengths
            )
            if needed < 0:
                raise self._broken(f"rows of {table} are damaged")
            if needed <= room:
                raw = replace(self._raw, content=text)
                return ReadColumns(raw, numbers, values, lengths, _decoded)
            room = needed
            text = np.concatenate([self._text, np.empty(room, dtype=np.uint8)])


def _allows(
    action: int, table: str | None, _column: str | None, _name: str | None, inside: str | None
) -> int:
    """Let only the declarations of tables be read, and no view."""
    is_pragma = action == sqlite3.SQLITE_PRAGMA and table == "table_xinfo"
    is_usual = action in _READS and inside is None
    return sqlite3.SQLITE_OK if is_pragma or is_usual else sqlite3.SQLITE_DENY


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")
