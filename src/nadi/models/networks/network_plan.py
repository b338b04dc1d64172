"""How a network is run: on how many ranks, with how many samples, and what ranks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NoReturn

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.models.networks.network_description import NeuralNetwork
from nadi.models.networks.table_shares import most_shares
from nadi.trace.arrays import Ints
from nadi.trace.dtypes import ITEMSIZE

__all__ = ["NetworkPlan"]

_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
_MOST_RANKS = 1 << 20


class NetworkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of a network on data parallel ranks.

    Attributes
    ----------
    ranks, batch
        Number of ranks, and the samples of one.
    zero
        What ranks shard of all but spread tables (ZeRO, arXiv 1910.02054): 1 the state of the
        optimizer, 2 also gradients, 3 also weights, gathered anew for the forward and the backward.
    bucket
        Gradients are reduced when so many MiB of them are there, as ``bucket_cap_mb`` of PyTorch's
        ``DistributedDataParallel`` says; the first time at 1 MiB.
    dtype, gradient_dtype
        Of weights and activations, and of weight gradients.
    inference
        The forward alone.
    """

    ranks: _Count = 1
    batch: _Count = 1
    zero: Literal[0, 1, 2, 3] = 0
    bucket: _Count = 25
    dtype: str = "bfloat16"
    gradient_dtype: str = "float32"
    inference: bool = False

    def check(self, network: NeuralNetwork) -> None:
        """Raise UsageError if plan and network do not fit together; it names what would."""
        if self.ranks > _MOST_RANKS:
            _refuse("ranks", f"{self.ranks} ranks", f"at most {_MOST_RANKS} are supported")
        for name in ("dtype", "gradient_dtype"):
            if getattr(self, name) not in ITEMSIZE:
                _refuse(name, f"unknown type {getattr(self, name)!r}", "give torch's name of it")
        if self.inference and self.zero in (1, 2):
            what = f"{self.zero} in inference, which has neither gradients nor an optimizer"
            _refuse("zero", what, "use 0, or 3 for sharded weights")
        if not self.inference and not any(network.is_trained):
            _refuse("inference", "no layer has parameters that could be trained", "set it")
        for layer in network.layers:
            if layer.is_spread and most_shares(layer.kind) < self.ranks:
                most = most_shares(layer.kind)
                what = f"{self.ranks} ranks cannot share the columns of {layer.name}"
                _refuse("ranks", what, f"{most} or less can")

    @property
    def samples(self) -> int:
        """Samples of a step of all ranks."""
        return self.ranks * self.batch

    @property
    def itemsize(self) -> int:
        """Bytes of an element of a weight or an activation."""
        return ITEMSIZE[self.dtype]

    @property
    def gradient_itemsize(self) -> int:
        """Bytes of an element of a weight gradient."""
        return ITEMSIZE[self.gradient_dtype]

    def groups(self) -> Mapping[str, Ints]:
        """Return the process groups by role; int64, (groups, members); none for one rank.

        ``dp`` reduces gradients, ``tables`` exchanges what is looked up in tables.
        """
        everyone = np.arange(self.ranks, dtype=np.int64)[None, :]
        return {"dp": everyone, "tables": everyone} if self.ranks > 1 else {}


def _refuse(name: str, what: str, remedy: str) -> NoReturn:
    raise UsageError([Parameter(name)], what, remedy)
