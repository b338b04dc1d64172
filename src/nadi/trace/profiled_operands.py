"""Operands of operators as PyTorch's profiler states them, with ``record_shapes=True``."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import msgspec
import numpy as np

from nadi.trace.arrays import Bools
from nadi.trace.dtypes import ITEMSIZE
from nadi.trace.trace import Trace
from nadi.trace.work import Operands

_LONGEST_SIDE = 1 << 62


class ProfiledArgs(msgspec.Struct):
    """What the profiler writes of the inputs of an operator."""

    dims: list[object] = msgspec.field(default_factory=list, name="Input Dims")
    types: list[str] = msgspec.field(default_factory=list, name="Input type")
    values: list[str] = msgspec.field(default_factory=list, name="Concrete Inputs")

    @property
    def dtype(self) -> str:
        """The type of elements of the first tensor, such as ``BFloat16``; empty for none."""
        kind = next((one for one in self.types if one and "Scalar" not in one), "")
        return kind.removeprefix("c10::")

    def operands(self) -> Operands:
        """Return the operands: inputs alone."""
        shapes = [
            list(one) if isinstance(one, list) and all(map(_is_side, one)) else []
            for one in self.dims  # empty for lists of tensors, and for sides that no tensor has
        ]
        items = [ITEMSIZE.get(one, 0) for one in self.types]
        items += [0] * (len(shapes) - len(items))
        sizes = [prod(one) * item if one else 0 for one, item in zip(shapes, items, strict=False)]
        return Operands(shapes, sizes, items, self.values)


_decoder = msgspec.json.Decoder(ProfiledArgs)


def profiled_args(trace: Trace, wanted: Bools) -> Iterator[tuple[int, ProfiledArgs]]:
    """Yield the nodes that are wanted and have shapes, with what is stated of their inputs.

    Parameters
    ----------
    wanted
        bool, shape (nodes,).
    """
    attributes = trace.attributes
    chosen = attributes.rows_named("args")
    owner = attributes.node[chosen]
    chosen = chosen[(owner >= 0) & wanted[np.maximum(owner, 0)]]
    for attribute in chosen.tolist():
        try:
            args = _decoder.decode(attributes.span(attribute))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # shapes of lists of tensors, or another tool's
        if args.dims:
            yield int(attributes.node[attribute]), args


def _is_side(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _LONGEST_SIDE
