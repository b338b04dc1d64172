"""Readers and writers, one file per format, and telling formats apart by content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from nadi.errors import FormatError
from nadi.formats import container

if TYPE_CHECKING:
    from nadi.trace import Trace

__all__ = ["KINETO", "PYTORCH_ET", "read", "sniff"]

_TOKEN = re.compile(rb'[{}\[\]]|"(?P<text>(?:[^"\\]|\\.)*+)"(?P<colon>\s*:)?')
_OWN_TIMELINE = "nadiTimeline"

PYTORCH_ET = "PyTorch execution trace"
KINETO = "Kineto trace"


def sniff(path: Path) -> str | None:
    """Tell a file's format from its first bytes; None if it is no trace that Nadi reads.

    Raises
    ------
    InputError
        If the file cannot be opened or is broken gzip.
    """
    keys = _top_level_keys(container.read_head(path))
    if _OWN_TIMELINE in keys:  # one that Nadi wrote; it is a result, not a recording
        return None
    if "schemaVersion" in keys or "traceEvents" in keys:
        return KINETO
    return PYTORCH_ET if {"schema", "nodes"} <= keys else None


def _top_level_keys(head: bytes) -> set[str]:
    """Give the keys of a JSON object as far as its first bytes show them."""
    keys = set()
    depth = 0
    for token in _TOKEN.finditer(head):
        text = token[0]
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and token["colon"]:
            keys.add(token["text"].decode(errors="replace"))
    return keys


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
    if found == KINETO:
        from nadi.formats import kineto

        return kineto.decode(container.read_file(path))
    if found == PYTORCH_ET:
        from nadi.formats import pytorch_et

        return pytorch_et.decode(container.read_file(path))
    raise FormatError(
        str(path),
        "neither a PyTorch execution trace (top-level keys 'schema' and 'nodes') nor a Kineto "
        "trace (top-level key 'traceEvents')",
        "give the JSON files that PyTorch's ExecutionTraceObserver and profiler wrote",
    )
