"""Values of tensors that route tokens to experts, if each expert gets equally many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nadi.pytorch.fake.operation_log import Operand

__all__ = ["RoutingHints"]

_INDICES = ("aten::topk", "aten::sort", "aten::argsort", "aten::argmax")
_SAME = (
    "aten::clone", "aten::_to_copy", "aten::copy_", "aten::contiguous", "aten::cat",
    "aten::stack", "aten::index", "aten::gather", "aten::index_select",
)  # fmt: skip


class RoutingHints:
    """Follows expert numbers, masks of one expert, and counts of tokens from operator to operator.

    Tensors are known by their storages, so views have the hints of their base.
    """

    def __init__(self) -> None:
        self._choices: dict[int, int] = {}  # numbers below this, each equally often
        self._share: dict[int, float] = {}  # of true elements in a mask
        self._mean: dict[int, float] = {}  # of elements

    def value(self, storage: int) -> float | None:
        """Return the mean of the elements of a tensor, if it is known."""
        return self._mean.get(storage)

    def choices(self, storage: int) -> int | None:
        """Return below which number the elements of a tensor are, if it is known."""
        return self._choices.get(storage)

    def share(self, storage: int) -> float | None:
        """Return which share of the elements of a mask is true, if it is known."""
        return self._share.get(storage)

    def compute(
        self, name: str, reads: Sequence[Operand], given: Sequence[Any], made: Sequence[Operand]
    ) -> None:
        """Follow an operator."""
        if not reads or not made:
            return
        source, target = reads[0], made[-1]
        if name in _INDICES and source.shape:
            dim = next((one for one in given[1:] if type(one) is int and one < 0), -1)
            self._choices[target.storage] = source.shape[dim]
        elif name in ("aten::eq", "aten::one_hot") and source.storage in self._choices:
            self._share[target.storage] = 1 / max(self._choices[source.storage], 1)
        elif name in ("aten::bincount", "aten::histc") and target.elements:
            self._mean[target.storage] = source.elements / target.elements
        elif name == "aten::sum":
            self._sum(source, target)
        elif name == "aten::scatter" or name == "aten::scatter_":
            self._one_hot(reads, target)
        elif name in _SAME:
            hints: tuple[dict[int, Any], ...] = (self._choices, self._share, self._mean)
            for known in hints:
                if source.storage in known:
                    known[target.storage] = known[source.storage]

    def communicate(
        self, comm_type: str, reads: Sequence[Operand], writes: Sequence[Operand]
    ) -> None:
        """Follow a collective; what comes from other ranks is like what is sent."""
        for source, target in zip(reads, writes, strict=False):
            if comm_type in ("all_to_all", "all_gather") and source.storage in self._mean:
                self._mean[target.storage] = self._mean[source.storage]

    def _sum(self, source: Operand, target: Operand) -> None:
        terms = source.elements / max(target.elements, 1)
        if source.storage in self._share:
            self._mean[target.storage] = self._share[source.storage] * terms
        elif source.storage in self._mean:
            self._mean[target.storage] = self._mean[source.storage] * terms

    def _one_hot(self, reads: Sequence[Operand], target: Operand) -> None:
        """Follow a matrix of zeros that got a one in each row, at the number of an expert."""
        chosen = next((one for one in reads[1:] if one.storage in self._choices), None)
        if chosen is not None:
            self._share[target.storage] = chosen.elements / max(target.elements, 1)
