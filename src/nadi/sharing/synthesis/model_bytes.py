"""A learned model as bytes, and back: MessagePack, compressed, with a line that says what it is.

Read and write the files of learned models.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from nadi.errors import FormatError, checked
from nadi.files.files import check_target, largest_content, locate, read_file, write_pieces
from nadi.files.native.nadi_file import first_line
from nadi.sharing.synthesis.learned_model import TraceModel
from nadi.sharing.synthesis.model_checks import check_model

_HEAD = b"nadi trace model 7\n"
_REMEDY = "give a file that nadi learn of this version wrote"
_TYPES = ("<i8", "<u8", "<f8")


def encode_model(model: TraceModel) -> bytes:
    """Return a model as bytes; equal models give equal bytes."""
    content = {
        "tokens": model.tokens, "rules": model.rules, "counts": model.counts,
        "longest": model.longest, "largest": model.largest, "quantities": model.quantities,
        "templates": model.templates,
    }  # fmt: skip
    return _HEAD + zlib.compress(msgspec.msgpack.encode(content, enc_hook=_plain), 6)


def decode_model(content: bytes, name: str) -> TraceModel:
    """Return the model of bytes that :func:`encode_model` made.

    - ``name``: Of the file, for messages.
    - Raises FormatError if they are something else, or damaged.
    """
    if not content.startswith(_HEAD):
        raise FormatError(name, "it is no model of traces, or of another version", _REMEDY)
    try:
        unpacked = _decompressed(content[len(_HEAD) :])
        model = msgspec.msgpack.decode(unpacked, type=TraceModel, dec_hook=_array)
        check_model(model)
    except (zlib.error, msgspec.MsgspecError, TypeError, ValueError, IndexError,
            OverflowError, RecursionError) as error:  # fmt: skip
        raise FormatError(name, f"the model is damaged: {first_line(error)}", _REMEDY) from None
    return model


def _decompressed(packed: bytes) -> bytes:
    """Return what was compressed, unless it is far larger than a model's."""
    most = largest_content(len(packed))
    reader = zlib.decompressobj()
    found = reader.decompress(packed, most)
    if not reader.eof:
        raise ValueError("it is cut off, or its content is far too large")
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        kind = value.dtype.newbyteorder("<")
        return [_TYPES.index(kind.str), list(value.shape), value.astype(kind).tobytes()]
    if isinstance(value, np.integer):
        return int(value)
    raise NotImplementedError(type(value).__name__)


def _array(declared: Any, value: Any) -> np.ndarray:
    """Return an array of the type that a field declares."""
    kind, shape, content = value
    dtype = np.dtype(get_args(get_args(declared)[1])[0])
    if _TYPES[kind] != dtype.newbyteorder("<").str or min(shape) < 0:
        raise ValueError("an array is of another type")
    return np.frombuffer(content, dtype=_TYPES[kind]).reshape(shape).astype(dtype)


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
