"""A learned model as bytes, and back: MessagePack, compressed, with a line that says what it is.

Read and write the files of learned models.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from nadi.errors import FormatError, checked
from nadi.files.files import check_target, locate, read_file, write_pieces
from nadi.sharing.synthesis.back_off import ORDERS, Counts
from nadi.sharing.synthesis.grammar import Repeat
from nadi.sharing.synthesis.learned_model import Quantities, Role, Template, TraceModel
from nadi.sharing.synthesis.quantities import EDGES, NUM_VARIANTS
from nadi.sharing.synthesis.storage_lives import LearnedStorages
from nadi.sharing.synthesis.tokens import Token

_HEAD = b"nadi trace model 7\n"
_REMEDY = "give a file that nadi learn of this version wrote"
_TYPES = ("<i8", "<u8", "<f8")
_LARGEST = 1 << 32
_BY_ENTRY = Quantities._fields.index("context")


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
        found = msgspec.msgpack.decode(zlib.decompress(content[len(_HEAD) :]), strict=False)
        model = _model(found)
        _check(model)
    except (zlib.error, msgspec.DecodeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise FormatError(name, f"the model is damaged: {error}", _REMEDY) from None
    return model


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        kind = value.dtype.newbyteorder("<")
        return [_TYPES.index(kind.str), list(value.shape), value.astype(kind).tobytes()]
    if isinstance(value, np.integer):
        return int(value)
    raise NotImplementedError(type(value).__name__)


def _array(value: Any) -> np.ndarray:
    kind, shape, content = value
    return np.frombuffer(content, dtype=_TYPES[kind]).reshape(shape).astype(_TYPES[kind][1:])


def _model(found: Any) -> TraceModel:
    tokens = tuple(map(_token, found["tokens"]))
    rules = tuple(Repeat(tuple(body), *growth) for body, *growth in found["rules"])
    *listed, memory = found["quantities"]
    arrays: dict[str, Any] = dict(zip(Quantities._fields, map(_array, listed), strict=False))
    return TraceModel(
        tokens, rules, tuple(Counts(*map(_array, one)) for one in found["counts"]),
        int(found["longest"]), int(found["largest"]), Quantities(**arrays, memory=float(memory)),
        tuple(map(_template, found["templates"])),
    )  # fmt: skip


def _token(found: Any) -> Token:
    one = Token(*found)
    waits = tuple((int(lane), int(between)) for lane, between in one.waits)
    return one._replace(group=tuple(one.group), waits=waits)


def _template(found: Any) -> Template:
    one = Template(*found)
    return one._replace(
        role=tuple(one.role),
        roles=tuple(Role(*role) for role in one.roles),
        groups=tuple(tuple(tuple(ranks) for ranks in own) for own in one.groups),
        load=_array(one.load),
        course=_array(one.course),
        memory=_memory(one.memory),
    )


def _memory(found: Any) -> LearnedStorages:
    made, lasting, device = found
    by_role = tuple(
        {
            key: tuple(tuple(tuple(one) for one in sizes) for sizes in every)
            for key, every in of_role.items()
        }
        for of_role in made
    )
    return LearnedStorages(by_role, tuple(lasting), device)


def _check(model: TraceModel) -> None:
    """Raise ValueError if parts do not belong together."""
    known = model.quantities
    size = known.token.size
    shapes = [getattr(known, name).shape[0] for name in Quantities._fields[:_BY_ENTRY]]
    if shapes != [size] * _BY_ENTRY or known.duration.shape[1] != EDGES.size - 1:
        raise ValueError("quantities")
    if known.flops.shape[1] != NUM_VARIANTS or known.shape.shape[1:] != (NUM_VARIANTS, 4):
        raise ValueError("sizes")
    every = np.arange(len(model.tokens))
    if not np.array_equal(np.unique(known.token), every):
        raise ValueError("tokens")
    if len(model.counts) != len(ORDERS):
        raise ValueError("counts")
    for one in model.counts:
        if one.first.size != one.context.size + 1 or one.first[-1] != one.symbol.size:
            raise ValueError("counts")
        symbols = one.symbol[np.abs(one.symbol) < _LARGEST]
        if symbols.size and (symbols.max() >= every.size or symbols.min() < -len(model.rules)):
            raise ValueError("symbols")
    for template in model.templates:
        ranks, roles = len(template.role), len(template.roles)
        steps, course = (ranks, template.num_steps), template.course.shape
        fits = template.load.shape == course[:-1] == steps and course[-1] > 0
        if not fits or not ranks or len(template.groups) != ranks or max(template.role) >= roles:
            raise ValueError("templates")
    if not model.templates:
        raise ValueError("no job")


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
