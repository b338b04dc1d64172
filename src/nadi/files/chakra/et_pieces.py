"""The bytes of an .et, piece by piece, from a file or from a trace in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nadi.files.chakra.et_encode import encode
from nadi.files.files import locate, read_pieces
from nadi.files.trace_files import read, sniff
from nadi.trace.arrays import Bytes
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

# of a file at a time: about the bytes of a window, so that it need not be put together
_LEAST_PIECE, _LARGEST_PIECE = 1 << 22, 1 << 26
_BYTES_PER_NODE = 64


def open_pieces(
    source: Path | str | Trace, window: int
) -> tuple[str, Iterator[bytes | memoryview | Bytes]]:
    """Open a file or address in any format that Nadi reads, plain or gzip; or a trace.

    Return its name in error messages, and the bytes of an .et: the metadata, and the nodes.

    Only an .et is read piece by piece; a piece has about the bytes of one window of nodes. A trace
    in memory is encoded piece by piece.

    - Raises InputError if the file does not exist, or its format is unknown.
    """
    if isinstance(source, Trace):
        files = source.provenance.sources
        return files[0].path if files else "the trace", encode(source, IssueLog())
    path = locate(source)
    found = sniff(path)
    if found is not None and found.name == "chakra":
        piece = min(max(window * _BYTES_PER_NODE, _LEAST_PIECE), _LARGEST_PIECE)
        return str(path), read_pieces(path, piece)
    # of another format, or of none: then this says so
    return str(path), encode(read(path), IssueLog())
