"""Read and write trace files: detect the format, and call its reader or writer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from nadi.errors import FormatError, InputError, Parameter, UsageError, check_kind, checked
from nadi.files import files as container
from nadi.files.files import is_local, locate
from nadi.files.registry import (
    FORMATS,
    Format,
    added_formats,
    format_for_writing,
    format_named,
)
from nadi.trace.issues import IssueLog

if TYPE_CHECKING:
    import polars as pl

    from nadi.files.files import RawFile
    from nadi.trace.trace import Trace

_TOKEN = re.compile(rb'[{}\[\]]|"(?P<text>(?:[^"\\]|\\.)*+)"(?P<colon>\s*:)?')
_TO_BRACKET = re.compile(rb'(?:[^{}\[\]"]++|"(?:[^"\\]|\\.)*+")*+[{}\[\]]')
_OWN_TIMELINE = "nadiTimeline"
_COMPRESSED = ".gz"
_TOGETHER = 128  # files; more take room and are no faster
_SMALL = 1 << 20  # bytes
_REMEMBERED = 1 << 14  # files
_FORMAT_OF: dict[bytes, str] = {}  # by the digest of a file's first bytes
_SUREST_FIRST = sorted(FORMATS, key=lambda one: not one.keys)  # keys tell more than first bytes


def sniff(path: Path | str) -> Format | None:
    """Detect a file's format from its first bytes, else from its suffix.

    Returns
    -------
    Format or None
        None if it is not a trace that Nadi reads.

    Raises
    ------
    InputError
        If the file cannot be opened or is broken gzip.
    """
    path = locate(path)
    return _format_by(path, container.read_head(path))


def _format_by(path: Path, head: bytes) -> Format | None:
    name = _by_content(head)
    if not name and path.name.removesuffix(_COMPRESSED).endswith(format_named("chakra").suffixes):
        name = "chakra"  # so that what is wrong with it is told
    return format_named(name) if name else None


def _by_content(head: bytes) -> str:
    """Return the name of a file's format by its first bytes; empty if unknown.

    The result is kept, because each file of a job is examined when it is found, sorted and read.
    """
    digest = blake2b(head, digest_size=16).digest()
    if digest not in _FORMAT_OF:
        if len(_FORMAT_OF) >= _REMEMBERED:
            _FORMAT_OF.clear()
        _FORMAT_OF[digest] = _format_of(head)
    return _FORMAT_OF[digest]


def _format_of(head: bytes) -> str:
    head = head.removeprefix(container.BYTE_ORDER_MARK)
    is_json = head.lstrip()[:1] in (b"{", b"[")
    for formats in (lambda: _SUREST_FIRST, added_formats):
        possible = formats()
        asked = {_OWN_TIMELINE}.union(*(keys for one in possible for keys in one.keys))
        keys = _top_level_keys(head, asked) if is_json else None
        if keys is not None and _OWN_TIMELINE in keys:
            return ""  # one that Nadi wrote: it is a result, not a recording
        for one in possible:
            if one.fits(head, keys):
                return one.name
    return ""


def _top_level_keys(head: bytes, asked: Iterable[str]) -> frozenset[str]:
    """Return which of some keys a JSON object has, as far as it is within the bytes.

    Reading ends with the last of them: most files begin with what tells their format.
    """
    missing = {key for key in asked if f'"{key}"'.encode() in head}
    found = set()
    depth = at = 0
    # within values, which are nearly all of it, from bracket to bracket
    while missing and (
        token := _TOKEN.search(head, at) if depth == 1 else _TO_BRACKET.match(head, at)
    ):
        at = token.end()
        last = head[at - 1 : at]
        if last in (b"{", b"["):
            depth += 1
        elif last in (b"}", b"]"):
            depth -= 1
        elif token["colon"] and (key := token["text"].decode(errors="replace")) in missing:
            missing.remove(key)
            found.add(key)
    return frozenset(found)


# files that other commands read, by what stands in their first bytes
_OTHERS = (
    ((b"PAR1",), "a Parquet table", "nadi analyze slowdown reads tables of operations"),
    ((b"pg_config",), "a dump of PyTorch's flight recorder", "nadi hang reads the dumps of a job"),
    ((b'"coll_perf"', b'"p2p_perf"'), "a log of NCCL's Inspector",
     "nadi collective measured --measured compares its times with a system"),
)  # fmt: skip


def read(path: Path | str) -> Trace:
    """Read one trace file, plain or gzip, of any format that Nadi reads.

    Parameters
    ----------
    path
        A file, or an address such as ``s3://bucket/rank0.et``.

    Returns
    -------
    Trace
        A PyTorch execution trace has operations without times; a Kineto trace has times
        and no dependencies. :func:`nadi.link_pair` links both into one.

    Raises
    ------
    InputError
        If the file cannot be read; the error states the place in the file.
    """
    path = locate(path)
    raw = _small_file(path) if is_local(path) else None
    found = sniff(path) if raw is None else _format_by(path, _head_of(raw))
    if found is None:
        from nadi.files.native import nadi_file as native

        if native.holds_simulation(container.read_head(path)):
            raise FormatError(
                str(path), "the file is the result of a simulation, not a trace",
                "show it with nadi info, or read it with nadi.simulation.read_simulation",
            )  # fmt: skip
        if native.holds_fold(container.read_head(path)):
            raise FormatError(
                str(path), "the file is a folded job, not a trace",
                "nadi simulate takes it as it is, tries changes and writes reports; "
                "nadi fold with undo writes its ranks",
            )  # fmt: skip
        for words, other, remedy in _OTHERS:
            if any(word in container.read_head(path) for word in words):
                raise FormatError(str(path), f"{other}, not a trace", remedy)
        titles = ", ".join(one.title for one in FORMATS if one.decoder)
        what = "not a trace in a format that Nadi reads"
        if not container.read_head(path):
            what = f"the file is empty: {what}"
        raise FormatError(str(path), what, f"it reads: {titles}")
    if found.name == "nadi":  # opens the file itself, to read only what is needed
        return found.decode(path)  # type: ignore[no-any-return]
    return found.decode(raw or container.read_file(path))  # type: ignore[no-any-return]


def _small_file(path: Path) -> RawFile | None:
    """Read a file that takes longer to look at than to read; None if it is large or broken."""
    try:
        if path.stat().st_size <= _SMALL:
            return container.read_file(path)
    except (InputError, OSError):  # what is told of it depends on what it is
        pass
    return None


def _head_of(raw: RawFile) -> bytes:
    return raw.content[: container.HEAD_SIZE].tobytes()


def read_files(paths: Sequence[Path]) -> list[Trace]:
    """Read a file for each rank of a job; small Chakra files together, which is faster.

    - Returns list of Trace: As returned by :func:`read`.
    - Raises InputError: For the first file that cannot be read.
    """
    traces = []
    for at in range(0, len(paths), _TOGETHER):
        some = paths[at : at + _TOGETHER]
        traces += _read_together(some) or [read(path) for path in some]
    return traces


def _read_together(paths: Sequence[Path]) -> list[Trace] | None:
    from nadi.files.chakra.et_ranks import decode_ranks

    if len(paths) == 1:
        return None
    raws = []
    for path in paths:
        raw = _small_file(path)
        if raw is None or _by_content(_head_of(raw)) != "chakra":
            return None
        raws.append(raw)
    return decode_ranks(raws)


@checked
def write(trace: Trace, path: Path | str, *, to: str = "", schema: str = "") -> pl.DataFrame:
    """Write one trace to a file.

    Parameters
    ----------
    path
        A file or an address; a name that ends in ``.gz`` is compressed. CSV has a file for
        each table: ``out.csv`` means ``out.nodes.csv``, ``out.deps.csv`` and so on.
    to
        Name of a format; by default that of the suffix.
    schema
        Of Chakra traces: ``0.0.4`` or ``1.0.0``.

    Returns
    -------
    polars.DataFrame
        ``schema.ISSUES``: what the format cannot hold.

    Raises
    ------
    UsageError
        If the format is unknown, or can only be read.
    InputError
        If the file cannot be written; an existing file is unchanged.
    """
    from nadi.trace.trace import Trace

    check_kind("trace", trace, Trace, "of a job, write each of its traces")
    path = locate(path)
    chosen = format_for_writing(path, to)
    if schema and chosen.name != "chakra":
        raise UsageError(
            Parameter("schema", schema), f"{chosen.title} has only one schema", "omit the schema"
        )
    log = IssueLog()
    if chosen.name == "csv":
        _write_tables(trace, path)
    else:
        options = {"schema": schema} if schema else {}
        try:
            container.write_pieces(path, chosen.encode(trace, log, **options))
        except InputError as error:  # an encoder does not know what it writes to
            raise InputError(error.where or str(path), error.what, error.remedy) from None
    return log.table()


def _write_tables(trace: Trace, path: Path) -> None:
    from nadi.files.csv_tables import encode_table, file_of_table, trace_tables
    from nadi.files.whole_folders import whole_files

    files = {file_of_table(path, name): frame for name, frame in trace_tables(trace).items()}
    with whole_files(list(files)) as places:
        for place, frame in zip(places, files.values(), strict=True):
            container.write_pieces(place, [encode_table(frame)])
