"""Nadi's own file: every table of a trace as Arrow, quick to open, exact to the bit.

It is a zip file without compression of its members. ``nadi.json`` comes first and holds the
version of the format and everything that no table holds. Each table is an Arrow file that
any Arrow reader opens. A column whose values are all missing is left out. Attributes,
which are most of the bytes, are read on first access.

Version 1: members ``nadi.json``, ``nodes.arrow``, ``deps.arrow``, ``groups.arrow``,
``issues.arrow``, ``attributes.arrow``, ``bytes.arrow``. A change that an older reader
would misread raises the version; every version ever written stays readable.
"""

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError, InputError
from nadi.files.files import check_regular, largest_content
from nadi.files.native.arrow import bytes_claimed
from nadi.files.settings_text import decode_json
from nadi.trace.attribute_kernels import copy_spans, first_no_json
from nadi.trace.attributes import CODES, SPAN_CODES, Attributes, LazyAttributes
from nadi.trace.issues import IssueLog
from nadi.trace.schema import ATTRIBUTE_TYPES, DEPS, GROUPS, ISSUES, NODES, Table
from nadi.trace.trace import Provenance, StepLengths, Trace

_Value = TypeVar("_Value")

VERSION = 1

_HEADER = "nadi.json"
SIMULATION = "simulation.json"  # the first member of a simulation's result, which is no trace
FOLD = "fold.json"  # and of a folded job
_TABLES = {"nodes": NODES, "deps": DEPS, "groups": GROUPS, "issues": ISSUES}
_PIECE = 1 << 20  # bytes of attributes to a row of bytes.arrow
_OLDEST_DATE = (1980, 1, 1, 0, 0, 0)  # of a zip: the same trace gives the same file
_END_OF_TIME = 2**63 - 1
_LONGEST_REASON = 200
_ATTRIBUTE_DTYPES = {"node": pl.Int32(), "name": pl.Int32(), "type": pl.UInt8(),
                     "value": pl.Int64(), "length": pl.Int32()}  # fmt: skip
_PIECE_DTYPES = {"bytes": pl.Binary()}
DAMAGED = "the file is damaged or cut off: write or copy it again"


_Rank = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]


class _Header(msgspec.Struct):
    version: int
    heights: dict[str, int]
    provenance: Provenance
    rank: _Rank
    world_size: _Rank
    process: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    names: list[str]  # of attributes
    format: str = "nadi trace"
    step_lengths: StepLengths | None = None


def looks_like(head: bytes) -> bool:
    """Return whether a file's first bytes are those of Nadi's own format."""
    return _first_member_is(_HEADER, head)


def holds_simulation(head: bytes) -> bool:
    """Return whether a file's first bytes are those of a simulation's result."""
    return _first_member_is(SIMULATION, head)


def holds_fold(head: bytes) -> bool:
    """Return whether a file's first bytes are those of a folded job."""
    return _first_member_is(FOLD, head)


def _first_member_is(name: str, head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04") and head[30 : 30 + len(name)] == name.encode()


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as Nadi's own file; yields its content in one piece."""
    attributes = trace.attributes
    header = _Header(
        version=VERSION,
        heights={name: getattr(trace, name).height for name in _TABLES},
        provenance=trace.provenance,
        rank=trace.rank,
        world_size=trace.world_size,
        process=trace.process,
        step_lengths=trace.step_lengths,
        names=list(attributes.names),
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as members:
        add_member(members, _HEADER, msgspec.json.format(msgspec.json.encode(header), indent=1))
        for name, table in _TABLES.items():
            add_table(members, name, without_missing(getattr(trace, name), table))
        columns, pieces = attribute_tables(attributes)
        add_table(members, "attributes", columns)
        add_table(members, "bytes", pieces)
    yield file.getvalue()


def add_member(members: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file to a zip, without a timestamp, so that equal content gives equal bytes."""
    members.writestr(zipfile.ZipInfo(name, _OLDEST_DATE), content)


def add_table(members: zipfile.ZipFile, name: str, frame: pl.DataFrame) -> None:
    """Add a table to a zip, as ``<name>.arrow``."""
    out = io.BytesIO()
    frame.write_ipc(out, compression="zstd")
    add_member(members, f"{name}.arrow", out.getvalue())


def without_missing(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Return the columns of a table that have other than missing values.

    Texts are categories there, so that the file has each distinct one once.
    """
    kept = [
        column.name
        for column in table.columns
        if column.missing is None or (frame[column.name] != column.missing).any()
    ]
    return frame.select(kept).cast({pl.String: pl.Categorical})


def attribute_tables(attributes: Attributes) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the attributes as a table, and the bytes of their spans without gaps."""
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
    """Open one of Nadi's own files. O(nodes + dependencies); attributes on first access.

    Raises
    ------
    FormatError
        If the file is damaged, or of a version newer than this Nadi.
    """
    with open_members(path) as members:
        header = read_header(path, members, _HEADER, _Header, VERSION)
        tables = {name: _read_table(path, members, name, header) for name in _TABLES}
        identity = _identity(members)
    _check_references(path, tables)
    return Trace(
        **tables,
        provenance=header.provenance,
        rank=header.rank,
        world_size=header.world_size,
        process=header.process,
        step_lengths=header.step_lengths,
        given_attributes=LazyAttributes(
            lambda: _read_attributes(path, identity, tables["nodes"].height)
        ),
    )


def _check_references(path: Path, tables: dict[str, pl.DataFrame]) -> None:
    """Reject references to rows that do not exist: kernels would read out of bounds."""
    num_nodes, num_groups = tables["nodes"].height, tables["groups"].height
    for table, column, least, end in (
        ("nodes", "parent", -1, np.arange(num_nodes)),
        ("nodes", "group", -1, num_groups),
        ("deps", "src", 0, num_nodes),
        ("deps", "dst", 0, num_nodes),
    ):
        values = tables[table][column].to_numpy()
        wrong = (values < least) | (values >= end)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = f"table {table}, row {row}: {column} is {values[row]}, which is not a valid row"
            raise FormatError(str(path), what, DAMAGED)
    ranks = tables["groups"]["ranks"]
    if (ranks.list.drop_nulls().list.len() != ranks.list.len()).any():
        raise FormatError(str(path), "table groups: a list of ranks contains a null", DAMAGED)
    start, duration, exclusive = (
        tables["nodes"][name].to_numpy() for name in ("start", "duration", "exclusive")
    )
    wrong = (start >= 0) & ((duration < 0) | (duration > _END_OF_TIME - np.maximum(start, 0)))
    wrong |= (exclusive < -1) | ((exclusive > duration) & (duration >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        what = f"table nodes, row {row}: start, duration and exclusive contradict each other"
        raise FormatError(str(path), what, DAMAGED)


@contextmanager
def open_members(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip of tables; raise InputError if it is not a zip or cannot be read."""
    try:
        check_regular(path)
        file = path.open("rb")
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read: {error.strerror or error}", "check the path"
        ) from None
    with file:
        try:
            members = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            what = f"not a complete zip file ({first_line(error)})"
            raise FormatError(str(path), what, DAMAGED) from None
        with members:
            names = members.namelist()
            if len(set(names)) < len(names):  # readers differ in which one they take
                raise FormatError(str(path), "two members have one name", DAMAGED)
            yield members


def _identity(members: zipfile.ZipFile) -> list[tuple[str, int, int]]:
    """Return an identity that differs if another file replaced this one."""
    return [(member.filename, member.file_size, member.CRC) for member in members.infolist()]


def read_zip_member(path: Path, members: zipfile.ZipFile, name: str) -> bytes:
    """Read a member of a zip; raise FormatError if it is missing or broken."""
    try:
        if members.getinfo(name).compress_type == zipfile.ZIP_STORED:
            return members.read(name)  # which checks its CRC
        what = f"member {name} is compressed; Nadi writes members uncompressed"
    except KeyError:
        what = f"member {name} is missing"
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError,
            ValueError) as error:  # fmt: skip
        what = f"member {name} cannot be read ({first_line(error)})"
    raise FormatError(str(path), what, DAMAGED)


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error, shortened and printable."""
    text = str(error).partition("\n")[0][:_LONGEST_REASON]
    return "".join(c if c.isprintable() else "?" for c in text)


def read_header(
    path: Path, members: zipfile.ZipFile, name: str, to: type[_Value], version: int, again: str = ""
) -> _Value:
    """Read the first member of one of Nadi's zip files, if it is of the version that is read.

    - ``again``: How else such a file is had, such as ``fold the job again``.
    - Raises FormatError if the member is missing or broken, or of another version.
    """
    content = read_zip_member(path, members, name)
    found = decode_json(content, dict[str, Any], str(path), DAMAGED, name).get("version")
    if found != version:
        raise FormatError(
            str(path), f"its format is version {found!r}; this Nadi reads version {version}",
            f"{again}, or update Nadi" if again else "update Nadi",
        )  # fmt: skip
    return decode_json(content, to, str(path), DAMAGED, name)


def _read_table(path: Path, members: zipfile.ZipFile, name: str, header: _Header) -> pl.DataFrame:
    frame = read_arrow(path, members, f"{name}.arrow")
    try:
        built = _TABLES[name].build(header.heights[name], frame.to_dict())
        _TABLES[name].check(built)
    except (
        ValueError, TypeError, KeyError, OverflowError, pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ) as error:  # fmt: skip
        what = f"table {name}: {first_line(error)}"
        raise FormatError(str(path), what, DAMAGED) from None
    return built


def read_arrow(path: Path, members: zipfile.ZipFile, name: str) -> pl.DataFrame:
    """Read a table of a zip; raise FormatError if it is missing or broken."""
    content = read_zip_member(path, members, name)
    try:
        if bytes_claimed(content) > largest_content(len(content)):
            raise ValueError("its buffers claim far more bytes than the file can hold")
        frame = pl.read_ipc(content)
    # polars panics, with an exception that is no Exception, if an invariant of Arrow is broken
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise FormatError(str(path), f"{name}: {first_line(error)}", DAMAGED) from None
    if pl.Null in frame.dtypes:  # such a column can claim any height without any bytes
        raise FormatError(str(path), f"{name}: a column has no type", DAMAGED)
    return frame


def _read_attributes(
    path: Path, identity: list[tuple[str, int, int]], num_nodes: int
) -> Attributes:
    with open_members(path) as members:
        if _identity(members) != identity:
            raise InputError(str(path), "the file changed after it was opened", "read it again")
        header = read_header(path, members, _HEADER, _Header, VERSION)
        columns = read_arrow(path, members, "attributes.arrow")
        pieces = read_arrow(path, members, "bytes.arrow")
    return attributes_of_tables(path, columns, pieces, header.names, num_nodes)


def attributes_of_tables(
    path: Path, columns: pl.DataFrame, pieces: pl.DataFrame, names: Sequence[str], num_nodes: int
) -> Attributes:
    """Return the attributes of a file; the inverse of :func:`attribute_tables`.

    - Raises FormatError if the tables are damaged.
    """
    for name, frame, dtypes in (
        ("attributes", columns, _ATTRIBUTE_DTYPES), ("bytes", pieces, _PIECE_DTYPES),
    ):  # fmt: skip
        if dict(frame.schema) != dtypes or any(frame.null_count().row(0)):
            raise FormatError(
                str(path),
                f"{name}.arrow: unexpected columns {first_line(ValueError(frame.schema))}",
                DAMAGED,
            )
    attributes = Attributes(
        **{name: columns[name].to_numpy() for name in columns.columns},
        names=tuple(names),
        buffers=(np.frombuffer(b"".join(pieces["bytes"].to_list()), dtype=np.uint8).copy(),),
    )
    if (row := _wrong_attribute(attributes, num_nodes)) >= 0:
        raise FormatError(str(path), f"attributes.arrow, row {row}: invalid attribute", DAMAGED)
    # which is written into other files as it is
    rows = np.flatnonzero(attributes.type == CODES["json"])
    length = attributes.length[rows].astype(np.int64)
    if (span := first_no_json(attributes.buffers[0], attributes.value[rows], length)) >= 0:
        what = f"attributes.arrow, row {rows[span]}: its text is not valid JSON"
        raise FormatError(str(path), what, DAMAGED)
    return attributes


def _wrong_attribute(attributes: Attributes, num_nodes: int) -> int:
    """Return the first row with an invalid node, name, type or span, or -1."""
    node, value, length = attributes.node, attributes.value, attributes.length
    is_span = np.isin(attributes.type, list(SPAN_CODES))
    size = attributes.buffers[0].size
    wrong = (node < -1) | (node >= num_nodes) | np.append(False, node[1:] < node[:-1])
    wrong |= (attributes.name < 0) | (attributes.name >= len(attributes.names))
    wrong |= attributes.type >= len(ATTRIBUTE_TYPES)
    wrong |= is_span & ((value < 0) | (length < 0) | (value > size) | (length > size - value))
    return int(np.argmax(wrong)) if wrong.any() else -1
