"""Readers and writers, one file per format, and telling formats apart by content."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nadi.errors import FormatError
from nadi.formats import container

if TYPE_CHECKING:
    from nadi.trace import Trace

__all__ = ["KINETO", "PYTORCH_ET", "read", "sniff"]

PYTORCH_ET = "PyTorch execution trace"
KINETO = "Kineto trace"


def sniff(path: Path) -> str | None:
    """Tell a file's format from its first bytes; None if it is no trace that Nadi reads.

    Raises
    ------
    InputError
        If the file cannot be opened or is broken gzip.
    """
    head = container.read_head(path)
    if b'"schemaVersion"' in head or b'"traceEvents"' in head:
        return KINETO
    if b'"schema"' in head:
        return PYTORCH_ET
    return None


def read(path: Path | str) -> Trace:
    """Read one trace file of either format, plain or gzip.

    Returns
    -------
    Trace
        A host trace has operations without times; a device trace has times and no
        dependencies. :func:`nadi.link_pair` makes one of both.

    Raises
    ------
    InputError
        With the place in the file, if it cannot be read.
    """
    path = Path(path)
    found = sniff(path)
    with container.garbage_collection_paused():
        if found == KINETO:
            from nadi.formats import kineto

            return kineto.read(path)
        if found == PYTORCH_ET:
            from nadi.formats import pytorch_et

            return pytorch_et.read(path)
    raise FormatError(
        str(path),
        "neither a PyTorch execution trace (top-level key 'schema') nor a Kineto trace "
        "(top-level key 'traceEvents')",
        "give the JSON files that PyTorch's ExecutionTraceObserver and profiler wrote",
    )
