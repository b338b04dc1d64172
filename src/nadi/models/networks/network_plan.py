"""How a network is run: on how many ranks, with how many samples, and what ranks share.

Buckets of gradients: which tensors are reduced together, and when they are complete.

PyTorch's ``DistributedDataParallel`` fills buckets in the order in which gradients are ready. One
is full when a tensor makes it as large as its limit: 1 MiB for the first, and what the
plan says for all others.

Load networks by name, from those shipped with Nadi or from files.
"""

import heapq
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from nadi.errors import NadiError
from nadi.files.settings_text import parse_settings
from nadi.files.shipped_files import Shelf
from nadi.models.llm.parallel_plan import unfit
from nadi.models.networks.layer_kinds import EmbeddingBag, LayerKind
from nadi.models.networks.network_file import NeuralNetwork, parse_network
from nadi.trace.arrays import Ints
from nadi.trace.operations import ITEMSIZE

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
            unfit("ranks", f"{self.ranks} ranks", f"at most {_MOST_RANKS} are supported")
        for name in ("dtype", "gradient_dtype"):
            if getattr(self, name) not in ITEMSIZE:
                unfit(name, f"unknown type {getattr(self, name)!r}", "give torch's name of it")
        if self.inference and self.zero in (1, 2):
            what = f"{self.zero} in inference, which has neither gradients nor an optimizer"
            unfit("zero", what, "use 0, or 3 for sharded weights")
        if not self.inference and not any(network.is_trained):
            unfit("inference", "no layer has parameters that could be trained", "set it")
        for layer in network.layers:
            if layer.is_spread and most_shares(layer.kind) < self.ranks:
                most = most_shares(layer.kind)
                what = f"{self.ranks} ranks cannot share the columns of {layer.name}"
                unfit("ranks", what, f"{most} or less can")

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


_MIB = 1 << 20


class Bucket(NamedTuple):
    """Parameters whose gradients are reduced together."""

    elements: int  # how many
    layers: tuple[int, ...]  # those that have one of them; the last one's gradient completes it


def buckets_of(network: NeuralNetwork, plan: NetworkPlan) -> list[Bucket]:
    """Return the buckets in the order in which the backward completes them."""
    found: list[Bucket] = []
    elements, layers, limit = 0, [], _MIB
    for number in reversed(range(len(network.layers))):
        layer = network.layers[number]
        for size in () if layer.is_spread else reversed(layer.tensors):
            elements += size
            layers.append(number)
            if elements * plan.gradient_itemsize >= limit:
                found.append(Bucket(elements, tuple(dict.fromkeys(layers))))
                elements, layers, limit = 0, [], plan.bucket * _MIB
    if elements:
        found.append(Bucket(elements, tuple(dict.fromkeys(layers))))
    return found


_SHELF = Shelf("networks", "network", "nadi generate network --model list prints them")


def shipped_networks() -> list[str]:
    """Return the names of the networks shipped with Nadi, in alphabetical order."""
    return _SHELF.names()


def is_network(path_or_name: Path | str) -> bool:
    """Tell whether this is the name of a network, or a file that lists layers."""
    if str(path_or_name) in shipped_networks():
        return True
    if not Path(path_or_name).is_file():
        return False
    try:
        found = parse_settings(*_SHELF.described(path_or_name), "network")
    except NadiError:
        return False  # and reading it as another model says what is wrong
    return isinstance(found, dict) and isinstance(found.get("layers"), list)


def load_network(path_or_name: Path | str) -> NeuralNetwork:
    """Load a network of layers: for images, recommendations or diffusion.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a network shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the JSON path.
    UsageError
        If no network has this name; the message lists similar names.
    """
    return parse_network(*_SHELF.described(path_or_name))


class TableShare(NamedTuple):
    """What a rank has of the tables of a layer."""

    # rows, parameters: rows of its tables, and their elements
    rows: int = 0
    parameters: int = 0
    columns: int = 0  # of all of its tables together: elements that it gives for a sample
    lookups: int = 0  # rows that a sample takes of them
    elements: int = 0  # elements of these rows


def most_shares(kind: LayerKind) -> int:
    """Return how many ranks can have a part of the tables of a layer."""
    assert isinstance(kind, EmbeddingBag)
    return len(kind.rows) * (kind.width & -kind.width)


def table_shares(kind: EmbeddingBag, ranks: int) -> list[TableShare]:
    """Return the share of each rank.

    The work of a table is the elements that are looked up in it and given. Deterministic;
    O(tables log tables).
    """
    blocks = 1
    while len(kind.rows) * blocks < ranks:
        blocks *= 2
    columns = kind.width // blocks
    parts = [
        TableShare(rows, rows * columns, columns, lookups, lookups * columns)
        for rows, lookups in zip(kind.rows, kind.of_tables, strict=True)
        for _ in range(blocks)
    ]
    parts.sort(key=lambda part: (part.elements, part.parameters), reverse=True)
    shares = [TableShare()] * ranks
    least = [(0, 0, rank) for rank in range(ranks)]
    for part in parts:
        _, _, rank = heapq.heappop(least)
        share = TableShare(*(a + b for a, b in zip(shares[rank], part, strict=True)))
        shares[rank] = share
        heapq.heappush(least, (share.elements + share.columns, share.parameters, rank))
    return shares
