"""Networks as values: layers with inputs, shapes and parameters, in the order of their use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from nadi.models.networks.layer_kinds import EmbeddingBag, Feature, LayerKind

__all__ = ["NetworkCounts", "NetworkLayer", "NeuralNetwork"]


class NetworkCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source says about a network, to compare with what follows.

    Attributes
    ----------
    parameters, tolerance
        Number of parameters, and by how much its rounding may differ; 0 is an exact count.
    macs, macs_tolerance
        Multiplications and additions of a sample's forward, a pair as one, in convolutions and
        matrix products; 0 if the source does not say.
    macs_attention, macs_layer_norm
        Whether the source counts the two products of attention; and how much it adds for each
        element of a layer norm.
    """

    parameters: int = 0
    tolerance: int = 0
    macs: int = 0
    macs_tolerance: int = 0
    macs_attention: bool = True
    macs_layer_norm: int = 0


@dataclass(frozen=True)
class NetworkLayer:
    """A layer of a network.

    Attributes
    ----------
    name
        Such as ``layer1.0.conv2``: block by block.
    part, number
        The outermost of these, and the number of its repetition among all of them.
    kind
        What it does.
    sources
        The layers that it takes its input from; -1 and less are inputs of the network, from the
        first.
    inputs, output
        Their shapes, and that of what it gives.
    tensors, fixed
        Sizes of its own parameters; and how many more it has that are not trained.
    weights
        The layer whose parameters it uses; -1 for its own.
    """

    name: str
    part: str
    number: int
    kind: LayerKind
    sources: tuple[int, ...]
    inputs: tuple[Feature, ...]
    output: Feature
    tensors: tuple[int, ...]
    fixed: int
    weights: int = -1

    @property
    def has_weights(self) -> bool:
        """Whether it has a gradient of weights, of its own or another layer's."""
        return bool(self.tensors) or self.weights >= 0

    @property
    def parameters(self) -> int:
        """Number of its own parameters."""
        return sum(self.tensors) + self.fixed

    @property
    def is_spread(self) -> bool:
        """Whether ranks share its tables."""
        return isinstance(self.kind, EmbeddingBag) and self.kind.spread


@dataclass(frozen=True)
class NeuralNetwork:
    """A network of layers.

    Attributes
    ----------
    name, about, source
        What it is called, a line about it, and where the figures are from.
    inputs
        Shapes of its inputs, by name.
    layers
        In the order of the forward.
    published
        What the source says about its size.
    """

    name: str
    about: str
    source: str
    inputs: Mapping[str, Feature]
    layers: tuple[NetworkLayer, ...]
    published: NetworkCounts | None = None

    @property
    def total_parameters(self) -> int:
        """Number of all parameters, with tables and with those that are not trained."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def table_parameters(self) -> int:
        """Number of the parameters of tables that ranks share."""
        return sum(layer.parameters for layer in self.layers if layer.is_spread)

    @cached_property
    def uses(self) -> tuple[tuple[int, ...], ...]:
        """The layers that take what each layer gives."""
        found: list[list[int]] = [[] for _ in self.layers]
        for number, layer in enumerate(self.layers):
            for source in layer.sources:
                if source >= 0:
                    found[source].append(number)
        return tuple(tuple(users) for users in found)

    @cached_property
    def is_trained(self) -> tuple[bool, ...]:
        """Whether each layer has parameters, or takes its input from one that is trained."""
        found: list[bool] = []
        for layer in self.layers:
            before = any(found[source] for source in layer.sources if source >= 0)
            found.append(layer.has_weights or before)
        return tuple(found)
