"""Buckets of gradients: which tensors are reduced together, and when they are complete.

PyTorch's ``DistributedDataParallel`` fills buckets in the order in which gradients are ready. One
is full when a tensor makes it as large as its limit: 1 MiB for the first, and what the
plan says for all others.
"""

from __future__ import annotations

from typing import NamedTuple

from nadi.models.networks.network_description import NeuralNetwork
from nadi.models.networks.network_plan import NetworkPlan

__all__ = ["Bucket", "buckets_of"]

_MIB = 1 << 20


class Bucket(NamedTuple):
    """Parameters whose gradients are reduced together.

    Attributes
    ----------
    elements
        How many.
    layers
        Those that have one of them; the last one's gradient completes it.
    """

    elements: int
    layers: tuple[int, ...]


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
