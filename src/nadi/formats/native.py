"""Nadi's own file: every table of a trace as Arrow, opened in a moment, exact to the bit.

A zip file without compression of its own. ``nadi.json`` comes first and says which
version of the format it is and what no table holds; each table is an Arrow file that
any Arrow reader opens. A column whose values are all missing is left out. Attributes
are read only when somebody asks for them: they are most of the bytes.

Version 1: members ``nadi.json``, ``nodes.arrow``, ``deps.arrow``, ``groups.arrow``,
``issues.arrow``, ``attributes.arrow``, ``bytes.arrow``. A change that an older reader
would misread raises the version; every version ever written stays readable.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.attributes import SPAN_CODES, Attributes, LazyAttributes
from nadi.errors import FormatError, InputError
from nadi.issues import IssueLog
from nadi.kernels.attributes import copy_spans
from nadi.provenance import Provenance
from nadi.schema import DEPS, GROUPS, ISSUES, NODES, Table
from nadi.trace import Trace

__all__ = ["VERSION", "encode", "looks_like", "read"]

VERSION = 1

_HEADER = "nadi.json"
_TABLES = {"nodes": NODES, "deps": DEPS, "groups": GROUPS, "issues": ISSUES}
_PIECE = 1 << 20  # bytes of attributes to a row of bytes.arrow
_OLDEST_DATE = (1980, 1, 1, 0, 0, 0)  # of a zip: the same trace gives the same file
_DAMAGED = "the file is damaged or cut off: write or copy it again"


class _Header(msgspec.Struct):
    version: int
    heights: dict[str, int]
    provenance: Provenance
    rank: int
    world_size: int
    process: int
    names: list[str]  # of attributes
    format: str = "nadi trace"


def looks_like(head: bytes) -> bool:
    """Tell from a file's first bytes whether it is one of Nadi's own."""
    return head.startswith(b"PK\x03\x04") and head[30 : 30 + len(_HEADER)] == _HEADER.encode()


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as Nadi's own file; gives its content in one piece."""
    attributes = trace.attributes
    header = _Header(
        version=VERSION,
        heights={name: getattr(trace, name).height for name in _TABLES},
        provenance=trace.provenance,
        rank=trace.rank,
        world_size=trace.world_size,
        process=trace.process,
        names=list(attributes.names),
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as members:
        _add(members, _HEADER, msgspec.json.format(msgspec.json.encode(header), indent=1))
        for name, table in _TABLES.items():
            _add(members, f"{name}.arrow", _arrow(_without_missing(getattr(trace, name), table)))
        columns, pieces = _attribute_tables(attributes)
        _add(members, "attributes.arrow", _arrow(columns))
        _add(members, "bytes.arrow", _arrow(pieces))
    yield file.getvalue()


def _add(members: zipfile.ZipFile, name: str, content: bytes) -> None:
    members.writestr(zipfile.ZipInfo(name, _OLDEST_DATE), content)


def _arrow(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out, compression="zstd")
    return out.getvalue()


def _without_missing(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    kept = [
        column.name
        for column in table.columns
        if column.missing is None or (frame[column.name] != column.missing).any()
    ]
    return frame.select(kept)


def _attribute_tables(attributes: Attributes) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the attributes, and the bytes of their spans without what lies between them."""
    rows = np.flatnonzero(np.isin(attributes.type, list(SPAN_CODES)))
    length = attributes.length[rows].astype(np.int64)
    content = np.empty(int(length.sum()), dtype=np.uint8)
    copy_spans(np.require(attributes.bytes(), requirements="W"), attributes.value[rows], length,
               content)  # fmt: skip
    value = attributes.value.copy()
    value[rows] = np.cumsum(length) - length
    columns = pl.DataFrame({
        "node": attributes.node, "name": attributes.name, "type": attributes.type,
        "value": value, "length": attributes.length,
    })  # fmt: skip
    pieces = [content[at : at + _PIECE].tobytes() for at in range(0, content.size, _PIECE)]
    return columns, pl.DataFrame({"bytes": pl.Series(pieces, dtype=pl.Binary)})


def read(path: Path) -> Trace:
    """Open one of Nadi's own files. O(nodes + dependencies); attributes when asked for.

    Raises
    ------
    FormatError
        If the file is damaged, or of a version newer than this Nadi.
    """
    with _open(path) as members:
        header = _read_header(path, members)
        tables = {name: _read_table(path, members, name, header) for name in _TABLES}
        identity = _identity(members)
    return Trace(
        **tables,
        provenance=header.provenance,
        rank=header.rank,
        world_size=header.world_size,
        process=header.process,
        given_attributes=LazyAttributes(lambda: _read_attributes(path, identity)),
    )


@contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read: {error.strerror or error}", "check the path"
        ) from None
    with file:
        try:
            members = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise FormatError(str(path), f"not a whole zip file ({error})", _DAMAGED) from None
        with members:
            yield members


def _identity(members: zipfile.ZipFile) -> list[tuple[str, int, int]]:
    """Give what tells a file from one that was put in its place."""
    return [(member.filename, member.file_size, member.CRC) for member in members.infolist()]


def _read_member(path: Path, members: zipfile.ZipFile, name: str) -> bytes:
    try:
        return members.read(name)  # which checks its CRC
    except KeyError:
        what = f"member {name} is not in the file"
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        what = f"member {name} cannot be read ({error})"
    raise FormatError(str(path), what, _DAMAGED)


def _read_header(path: Path, members: zipfile.ZipFile) -> _Header:
    content = _read_member(path, members, _HEADER)
    try:
        version = msgspec.json.decode(content, type=dict[str, Any])["version"]
        if version != VERSION:
            raise FormatError(
                str(path), f"its format is version {version!r}; this Nadi reads version {VERSION}",
                "update Nadi",
            )  # fmt: skip
        return msgspec.json.decode(content, type=_Header)
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
        raise FormatError(str(path), f"{_HEADER}: {error}", _DAMAGED) from None


def _read_table(path: Path, members: zipfile.ZipFile, name: str, header: _Header) -> pl.DataFrame:
    frame = _read_arrow(path, members, f"{name}.arrow")
    try:
        return _TABLES[name].build(header.heights[name], frame.to_dict())
    except (ValueError, KeyError, pl.exceptions.PolarsError) as error:
        raise FormatError(str(path), f"table {name}: {error}", _DAMAGED) from None


def _read_arrow(path: Path, members: zipfile.ZipFile, name: str) -> pl.DataFrame:
    content = _read_member(path, members, name)
    try:
        return pl.read_ipc(content)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise FormatError(str(path), f"{name}: {error}", _DAMAGED) from None


def _read_attributes(path: Path, identity: list[tuple[str, int, int]]) -> Attributes:
    with _open(path) as members:
        if _identity(members) != identity:
            raise InputError(str(path), "the file has changed since it was opened", "read it again")
        header = _read_header(path, members)
        columns = _read_arrow(path, members, "attributes.arrow")
        pieces = _read_arrow(path, members, "bytes.arrow")
    return Attributes(
        **{name: columns[name].to_numpy() for name in columns.columns},
        names=tuple(header.names),
        buffers=(np.frombuffer(b"".join(pieces["bytes"].to_list()), dtype=np.uint8).copy(),),
    )
