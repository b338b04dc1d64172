"""Read and write the files of learned models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nadi.errors import checked
from nadi.files.addresses import check_target, locate
from nadi.files.files import read_file, write_pieces
from nadi.sharing.synthesis.learned_model import TraceModel
from nadi.sharing.synthesis.model_bytes import decode_model, encode_model

__all__ = ["read_trace_model", "write_trace_model"]


def read_trace_model(path: Path | str) -> TraceModel:
    """Read a model that :func:`write_trace_model` or ``nadi learn`` wrote.

    Raises
    ------
    InputError
        If the file cannot be read.
    FormatError
        If it is no model, or damaged.
    """
    return decode_model(read_file(locate(path)).content.tobytes(), str(path))


@checked
def write_trace_model(
    model: TraceModel, path: Path | str, sources: Sequence[Path] = (), *, overwrite: bool = False
) -> int:
    """Write a model to a file; returns its size in bytes. Equal models give equal files.

    Parameters
    ----------
    sources
        Files that must not be overwritten.

    Raises
    ------
    InputError
        If the file exists and ``overwrite`` is not given, or it cannot be written.
    """
    target = locate(path)
    check_target(target, sources, overwrite=overwrite)
    content = encode_model(model)
    write_pieces(target, [content])
    return len(content)
