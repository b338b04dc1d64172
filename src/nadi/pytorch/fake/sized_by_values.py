"""Operators whose results have sizes that depend on values: they get sizes for even routing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from nadi.pytorch.fake.routing_hints import RoutingHints

__all__ = ["SIZED_BY_VALUES", "has_mask", "with_indices"]

torch: Any = importlib.import_module("torch")

Sizes = Callable[[RoutingHints, int, Any, Any], Any]


def _nonzero(hints: RoutingHints, storage: int, mask: Any, _: Any) -> Any:
    share = hints.share(storage)
    count = mask.numel() if share is None else round(share * mask.numel())
    return mask.new_empty((count, max(mask.dim(), 0)), dtype=torch.int64)


def _bincount(hints: RoutingHints, storage: int, numbers: Any, options: Any) -> Any:
    least = options.get("minlength", 0)
    return numbers.new_empty((max(least, hints.choices(storage) or 1),), dtype=torch.int64)


def _masked_select(hints: RoutingHints, storage: int, values: Any, options: Any) -> Any:
    return values.new_empty((values.numel(),))


SIZED_BY_VALUES: dict[str, Sizes] = {
    "aten::nonzero": _nonzero,
    "aten::bincount": _bincount,
    "aten::masked_select": _masked_select,
}
"""Functions that make a result, from hints, the storage of the first argument, and arguments."""


def has_mask(name: str, args: Any) -> bool:
    """Return whether an operator takes the elements where a mask is true."""
    return name == "aten::index" and any(
        one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
    )


def with_indices(args: Any) -> Any:
    """Return the arguments of ``aten::index`` with the indices of masks instead of masks."""
    indices: list[Any] = []
    for one in args[1]:
        if one is not None and one.dtype in (torch.bool, torch.uint8):
            indices += one.nonzero().unbind(1)
        else:
            indices.append(one)
    return (args[0], indices, *args[2:])
