"""Damage inside of files, of which all checksums, lengths and compressions stay right.

A byte that changes in a compressed or checked file is found at once, whatever the file says. So
values are changed where they stand, and the file is written as its own program writes it.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import sqlite3
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import msgspec
import polars as pl

from nadi.files.parquet_process import read_parquet_apart
from nadi.trace.protobuf_values import write_varint
from tests.fuzz.mutations import HOSTILE_VALUES, changed_value, mutated

__all__ = ["damaged", "other_rows"]

_INTEGERS = (-(2**63), -2, -1, 0, 1, 4, 5, 2**31, 2**40, 2**62, 2**63 - 1, None, 1000)
_REALS = (0.0, -1.0, 0.5, 1e18, 1e300, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", "\n", None, "a" * 1000, "kernel", [], [-1], [2**40], b"\xff")
_DEEPEST = 8  # messages within messages
# what tells that a file was damaged before, so that its inside cannot be reached
_BROKEN = (
    ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, struct.error, zlib.error,
    zipfile.BadZipFile, NotImplementedError, RuntimeError, sqlite3.Error, pickle.PickleError,
    msgspec.MsgspecError, pl.exceptions.PolarsError, AttributeError, OSError, MemoryError,
)  # fmt: skip


def damaged(content: bytes, other: bytes, name: str, chance: random.Random) -> bytes:
    """Damage a file: JSON and what has checksums mostly as values, other files as bytes."""
    if name.endswith(".json") and chance.random() < 0.6:
        try:
            value = json.loads(content)
        except ValueError:  # damaged already
            value = None
        if value is not None:
            return json.dumps(changed_value(value, chance)).encode(errors="replace")
    for begin, change in _BEGINS.items():
        if content.startswith(begin) and chance.random() < 0.8:
            with suppress(*_BROKEN):
                return change(content, chance)
    if name.endswith((".pftrace", ".xplane.pb")) and chance.random() < 0.7:
        with suppress(*_BROKEN):
            return _message(content, chance)
    return mutated(content, other, str(chance.random()))


def other_rows(content: bytes, chance: random.Random) -> bytes:
    """Give a table as an Arrow file with one value, column or row changed."""
    out = io.BytesIO()
    frame = _changed_frame(pl.read_ipc(content), chance)
    frame.write_ipc(out, compression=chance.choice(("zstd", "lz4", "uncompressed")))
    return out.getvalue()


def _parquet(content: bytes, chance: random.Random) -> bytes:
    out = io.BytesIO()
    # of a file that was damaged before, polars may panic, or end its process
    _changed_frame(read_parquet_apart(content), chance).write_parquet(
        out, compression=chance.choice(("zstd", "lz4", "snappy", "gzip", "uncompressed")),
        row_group_size=chance.choice((None, 1, 3)), data_page_size=chance.choice((None, 1, 50)),
        statistics=chance.random() < 0.5,
    )  # fmt: skip
    found = out.getvalue()
    return mutated(found, found, str(chance.random())) if chance.random() < 0.3 else found


def _changed_frame(frame: pl.DataFrame, chance: random.Random) -> pl.DataFrame:
    column = chance.choice(frame.columns)
    series, damage = frame[column], chance.random()
    if damage < 0.6 and len(series):
        values = series.to_list()
        others = (
            _INTEGERS if series.dtype.is_integer()
            else _REALS if series.dtype.is_float() else _TEXTS
        )  # fmt: skip
        values[chance.randrange(len(values))] = chance.choice(others)
        try:
            series = pl.Series(column, values, dtype=series.dtype, strict=False)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            series = series.shift(1)
        return frame.with_columns(series)
    if damage < 0.7:
        return frame.drop(column)
    if damage < 0.8 and series.dtype.is_numeric():
        other = chance.choice((pl.Int8, pl.Float64, pl.String))
        return frame.with_columns(series.cast(other, strict=False))
    if damage < 0.9:
        return frame.head(chance.randint(0, frame.height))
    return pl.concat([frame, frame])


# zip


def _zip(content: bytes, chance: random.Random) -> bytes:
    """Change a member, with a checksum that is right, or what the zip says of its members."""
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        members = [(name, whole.read(name)) for name in whole.namelist()]
    if chance.random() < 0.2:
        return _zip_fields(content, chance)
    at = chance.randrange(len(members))
    name, data = members[at]
    damage = chance.random()
    if damage < 0.1:
        members.insert(chance.randint(0, len(members)), (name, chance.choice(members)[1]))
    elif damage < 0.2:
        members[at] = (chance.choice((f"../{name}", f"/{name}", f"a/{name}", "", name * 9)), data)
    elif damage < 0.25:
        del members[at]
    elif name.endswith(".json") and damage < 0.9:
        changed = changed_value(json.loads(data), chance)
        members[at] = (name, json.dumps(changed).encode(errors="replace"))
    elif name.endswith(".arrow") and damage < 0.9:
        members[at] = (name, other_rows(data, chance))
    else:
        members[at] = (name, mutated(data, chance.choice(members)[1], str(chance.random())))
    out = io.BytesIO()
    with (
        warnings.catch_warnings(action="ignore"),  # of names that stand twice
        zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file,
    ):
        for one, written in members:
            info = zipfile.ZipInfo(one)
            info.external_attr = chance.choice((0, 0, 0o120777 << 16, 0o40755 << 16))  # a link
            kind = zipfile.ZIP_DEFLATED if chance.random() < 0.01 else zipfile.ZIP_STORED
            file.writestr(info, written, kind)
    return out.getvalue()


# of a member, of its entry in the list, and of the end: bytes of each field after the signature
_ZIP_FIELDS = {
    b"PK\x03\x04": (2, 2, 2, 2, 2, 4, 4, 4, 2, 2),
    b"PK\x01\x02": (2, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2, 2, 2, 2, 4, 4),
    b"PK\x05\x06": (2, 2, 2, 2, 4, 4, 2),
}
_FLAGS = (0, 1, 8, 1 << 6, 1 << 11, 1 << 13)  # encrypted, with its sizes after it, ...


def _zip_fields(content: bytes, chance: random.Random) -> bytes:
    signature = chance.choice(list(_ZIP_FIELDS))
    places = [at for at in range(len(content)) if content.startswith(signature, at)]
    sizes = _ZIP_FIELDS[signature]
    field = chance.randrange(len(sizes))
    at = chance.choice(places) + 4 + sum(sizes[:field])
    most = 256 ** sizes[field] - 1
    value = min(most, chance.choice((*_FLAGS, 3, 99, 2**31, len(content), most - 1, most)))
    return content[:at] + value.to_bytes(sizes[field], "little") + content[at + sizes[field] :]


# models


def _packed_model(content: bytes, chance: random.Random) -> bytes:
    head, _, packed = content.partition(b"\n")
    value = msgspec.msgpack.decode(zlib.decompress(packed), strict=False)
    for _ in range(chance.choice((1, 1, 2, 3))):
        value = _changed_packed(value, chance)
    return head + b"\n" + zlib.compress(msgspec.msgpack.encode(value), 1)


def _model(content: bytes, chance: random.Random) -> bytes:
    head, _, packed = content.partition(b"\n")
    value = msgspec.msgpack.decode(packed)
    for _ in range(chance.choice((1, 1, 2, 3))):
        value = _changed_packed(value, chance)
    return head + b"\n" + msgspec.msgpack.encode(value)


def _changed_packed(value: Any, chance: random.Random) -> Any:
    """Give a value with one thing changed; most of a model is in arrays: a type, a shape, bytes."""
    is_array = isinstance(value, list) and len(value) == 3 and isinstance(value[2], bytes)
    if is_array and len(value[2]) >= 8 and chance.random() < 0.9:
        at = 8 * chance.randrange(len(value[2]) // 8)
        return [
            *value[:2],
            value[2][:at] + _word(value[2][at : at + 8], chance) + value[2][at + 8 :],
        ]
    if isinstance(value, dict) and value and chance.random() < 0.97:
        key = chance.choice(sorted(value, key=str))
        return {**value, key: _changed_packed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.93:
        at = chance.randrange(len(value))
        return [*value[:at], _changed_packed(value[at], chance), *value[at + 1 :]]
    if isinstance(value, int) and chance.random() < 0.4:
        return value + chance.choice((-1, 1, 2, 1000))
    return changed_value(value, chance)


def _word(before: bytes, chance: random.Random) -> bytes:
    """Give another number of eight bytes, of any of the types of an array."""
    if chance.random() < 0.3:
        return struct.pack("<d", chance.choice(_REALS))
    (number,) = struct.unpack("<q", before)
    near = number + chance.choice((-1, 1))
    return struct.pack("<q", chance.choice((*_INTEGERS, near, near, near, 1 << 40)) or 0)


# databases


_STATEMENTS = (
    "UPDATE {t} SET {c} = NULL", "UPDATE {t} SET {c} = zeroblob(5000)",
    "UPDATE {t} SET {c} = x'ff00'", "UPDATE {t} SET {c} = 'text' WHERE rowid = 1",
    "UPDATE {t} SET {c} = 1e300", "UPDATE {t} SET {c} = -1 WHERE rowid = 1",
    "UPDATE {t} SET {c} = 9223372036854775807", "UPDATE {t} SET {c} = -9223372036854775808",
    "UPDATE {t} SET {c} = {c} + 1", "UPDATE {t} SET {c} = 4294967296", "UPDATE {t} SET {c} = 0.5",
    "DELETE FROM {t}", "DELETE FROM {t} WHERE rowid = 1", "DROP TABLE {t}",
    "INSERT INTO {t} SELECT * FROM {t}", "UPDATE {t} SET rowid = rowid - 9223372036854775808",
    "ALTER TABLE {t} ADD COLUMN extra AS (1 + 1)", "ALTER TABLE {t} RENAME COLUMN {c} TO other",
    "ALTER TABLE {t} ADD COLUMN kept DEFAULT 'x'", "ALTER TABLE {t} DROP COLUMN {c}",
    "CREATE INDEX one ON {t} ({c})", "CREATE TRIGGER one INSERT ON {t} BEGIN DELETE FROM {t}; END",
    "ALTER TABLE {t} RENAME TO hidden; CREATE VIEW {t} AS SELECT * FROM hidden",
    ("ALTER TABLE {t} RENAME TO hidden; CREATE VIEW {t} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION "
     "ALL SELECT x + 1 FROM n) SELECT * FROM hidden, n"),
    ("ALTER TABLE {t} RENAME TO hidden; CREATE TABLE {t} ({c} INTEGER PRIMARY KEY, start, end) "
     "WITHOUT ROWID; INSERT INTO {t} VALUES (5, 1, 2)"),
    ("ALTER TABLE {t} RENAME TO hidden; CREATE TABLE {t} ({c}, end AS ({c} + 1) STORED, start AS "
     "({c} - 1)); INSERT INTO {t} VALUES (5)"),
    "ALTER TABLE {t} RENAME TO hidden; CREATE VIRTUAL TABLE {t} USING fts5({c})",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = {n} WHERE name = '{t}'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = '{s}' WHERE name = '{t}'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET name = '{t}' WHERE rowid = 1",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET type = 'view' WHERE name = '{t}'",
    "VACUUM", "PRAGMA user_version = -1",
)  # fmt: skip
_DECLARED = (
    "", "CREATE TABLE", "CREATE TABLE a(", "CREATE TABLE a(x)", "SELECT 1",
    "CREATE TABLE a(x, x, x, x, x, x, x, x, x, x, x, x)", "CREATE TABLE a(x AS (x))",
    "CREATE VIEW a AS SELECT load_extension(1)", "CREATE TABLE a(start CHECK (start > 0), end)",
)  # fmt: skip


def _database(content: bytes, chance: random.Random) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(content)
        for _ in range(chance.choice((1, 1, 2))):
            named = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            table = chance.choice([row[0] for row in named])
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            statement = chance.choice(_STATEMENTS).format(
                t=table, c=chance.choice(columns), s=chance.choice(_DECLARED),
                n=chance.choice((0, -1, 1, 2, 5, 2**31, 2**40)),
            )  # fmt: skip
            with suppress(sqlite3.Error):
                database.executescript(statement)
        return bytes(database.serialize())


# pickles


class _Plain(pickle.Unpickler):
    """Reads what the corpus has; a file that was damaged before may name anything."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _pickled(content: bytes, chance: random.Random) -> bytes:
    value = _Plain(io.BytesIO(content)).load()
    for _ in range(chance.choice((1, 1, 2))):
        value = _changed_pickled(value, chance)
    return pickle.dumps(value, chance.choice((2, 3, 4, 5)))


def _changed_pickled(value: Any, chance: random.Random) -> Any:
    """Give a value with one thing changed, that JSON need not have: what holds itself, and bytes."""
    if isinstance(value, tuple) and value and chance.random() < 0.8:
        return tuple(_changed_pickled(list(value), chance))
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value, key=str))
        return {**value, key: _changed_pickled(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [*value[:at], _changed_pickled(value[at], chance), *value[at + 1 :]]
    if chance.random() < 0.2:
        own: list[Any] = [value]
        own.append(own)
        return chance.choice((own, {"own": own}, b"\xff\x00", bytearray(3), {1, 2}, 1j, (own, own)))
    return changed_value(value, chance)


# messages


def _message(content: bytes, chance: random.Random, depth: int = 0) -> bytes:
    """Give a protobuf message with one field changed, here or further inside."""
    fields = _fields(content)
    if not fields:
        return content + chance.choice((b"", b"\x08\x01", b"\x0a\x00"))
    at = chance.randrange(len(fields))
    key, value = fields[at]
    damage = chance.random()
    if damage < 0.05:
        del fields[at]
    elif damage < 0.1:
        fields.insert(chance.randint(0, len(fields)), fields[at])
    elif damage < 0.15:
        fields[at] = (write_varint(chance.choice((8, 10, 13, 9, 18, 98, 482))), value)
    elif key[0] & 7 != 2 or not value:
        fields[at] = (key, _other_number(key[0] & 7, chance))
    else:
        begin = len(write_varint(_number_of(value)))
        inside = value[begin:]
        changed = None
        if depth < _DEEPEST and chance.random() < 0.9:
            with suppress(*_BROKEN):
                changed = _message(inside, chance, depth + 1)
        if changed is None:
            text = str(chance.choice(HOSTILE_VALUES)).encode(errors="replace")
            changed = chance.choice((text, mutated(inside, content, str(chance.random()))))
        fields[at] = (key, write_varint(len(changed)) + changed)
    return b"".join(one for field in fields for one in field)


def _fields(content: bytes) -> list[tuple[bytes, bytes]]:
    """Give the fields of a message: the key and the value of each, as they are written."""
    found, at = [], 0
    while at < len(content):
        number = _number_of(content[at:])
        begin = at + len(write_varint(number))
        kind = number & 7
        if kind == 0:
            end = begin + len(write_varint(_number_of(content[begin:])))
        elif kind in (1, 5):
            end = begin + (8 if kind == 1 else 4)
        elif kind == 2:
            size = _number_of(content[begin:])
            end = begin + len(write_varint(size)) + size
        else:
            raise ValueError(kind)
        if end > len(content) or not number >> 3:
            raise ValueError(end)
        found.append((content[at:begin], content[begin:end]))
        at = end
    return found


def _number_of(content: bytes) -> int:
    number = 0
    for place, byte in enumerate(content[:10]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number
    raise ValueError(content[:10])


def _other_number(kind: int, chance: random.Random) -> bytes:
    number = (chance.choice(_INTEGERS) or 7) & (2**64 - 1)
    if kind == 0:
        return write_varint(number)
    return number.to_bytes(8, "little")[: 8 if kind == 1 else 4]


_BEGINS: dict[bytes, Callable[[bytes, random.Random], bytes]] = {
    b"PK\x03\x04": _zip, b"nadi trace model": _packed_model, b"nadi generator": _model,
    b"SQLite format 3": _database, b"PAR1": _parquet,
    **{bytes((0x80, protocol)): _pickled for protocol in (2, 3, 4, 5)},
}  # fmt: skip
