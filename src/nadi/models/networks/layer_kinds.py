"""The kinds of layers that a network's file may name: their keys, shapes and parameters.

A shape is that of one sample: ``(channels, height, width)`` of an image, ``(tokens, width)`` of a
sequence, ``(width,)`` of a vector, and ``()`` of a loss.
"""

from collections.abc import Sequence
from math import isqrt, prod
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

_IMAGE, _SEQUENCE, _VECTOR = 3, 2, 1
_NAMES = {_IMAGE: "an image", _SEQUENCE: "a sequence", _VECTOR: "a vector", 0: "a loss"}
_MOST = 1 << 31
_Count = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
_Small = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]
_COUNTER = 8  # bytes of the batches that a batch norm has seen
_F32 = 4


class Feature(NamedTuple):
    """What a layer gives for one sample."""

    shape: tuple[int, ...]  # its sizes
    copies: int = 1  # how many there are of them, such as the regions of an image

    @property
    def elements(self) -> int:
        """Number of its elements, of all copies."""
        return prod(self.shape) * self.copies

    def told(self) -> str:
        """Return its sizes in words."""
        sizes = " x ".join(map(str, self.shape)) or "a number"
        return f"{self.copies} times {sizes}" if self.copies > 1 else sizes


class MisfitError(Exception):
    """A layer does not fit what it is given: the key that is wrong, what was met, and a remedy."""

    def __init__(self, key: str, what: str, remedy: str) -> None:
        super().__init__(key, what, remedy)
        self.key, self.what, self.remedy = key, what, remedy


Inputs: TypeAlias = Sequence[Feature]


class LayerKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A layer of any kind; unknown keys are errors."""

    least_inputs: ClassVar[int] = 1
    most_inputs: ClassVar[int] = 1

    is_view: ClassVar[bool] = False
    """Whether it gives what it takes, in another shape, without any work."""

    def gives(self, inputs: Inputs) -> Feature:
        """Return what it gives.

        - Raises MisfitError if its inputs do not fit it.
        """
        return self._gives(inputs)

    def tensors(self, inputs: Inputs) -> tuple[int, ...]:
        """Return the sizes of its parameters, in the order in which PyTorch registers them."""
        return self._tensors(inputs)

    def fixed(self, inputs: Inputs) -> int:
        """Return how many parameters it has beside them that are not trained."""
        return self._fixed(inputs)

    def _gives(self, inputs: Inputs) -> Feature:
        return inputs[0]

    def _tensors(self, inputs: Inputs) -> tuple[int, ...]:
        return ()

    def _fixed(self, inputs: Inputs) -> int:
        return 0


class Conv(LayerKind, frozen=True):
    """A convolution of images; by default padded so that an odd kernel keeps their size.

    Transposed ones (``transposed``) enlarge images by their stride.
    """

    out: _Count
    kernel: _Count
    stride: _Count = 1
    padding: _Small | None = None
    groups: _Count = 1
    bias: bool = True
    transposed: bool = False

    def _gives(self, inputs: Inputs) -> Feature:
        channels, height, width = of_rank(inputs[0], _IMAGE)
        for key, size in (("in", channels), ("out", self.out)):
            if size % self.groups:
                fits = [str(n) for n in _divisors(channels) if self.out % n == 0]
                what = f"{self.groups} does not divide the {size} channels {key}"
                raise MisfitError("groups", what, f"one of {', '.join(fits[:12])} would")
        sides = [self._side(side) for side in (height, width)]
        if min(sides) < 1:
            what = f"{self.kernel} is larger than the padded image, {height} x {width}"
            most = min(height, width) + 2 * self._padding
            raise MisfitError("kernel", what, f"{most} or less would fit")
        return Feature((self.out, *sides), inputs[0].copies)

    @property
    def _padding(self) -> int:
        return (self.kernel - 1) // 2 if self.padding is None else self.padding

    def _side(self, side: int) -> int:
        if self.transposed:
            padding = self.padding or 0
            return (side - 1) * self.stride - 2 * padding + self.kernel
        return (side + 2 * self._padding - self.kernel) // self.stride + 1

    def _tensors(self, inputs: Inputs) -> tuple[int, ...]:
        weight = self.out * inputs[0].shape[0] // self.groups * self.kernel**2
        return (weight, self.out) if self.bias else (weight,)


class Linear(LayerKind, frozen=True):
    """A linear layer on vectors, or on each token of a sequence."""

    out: _Count
    bias: bool = True

    def _gives(self, inputs: Inputs) -> Feature:
        _flat(inputs[0])
        return Feature((*inputs[0].shape[:-1], self.out), inputs[0].copies)

    def _tensors(self, inputs: Inputs) -> tuple[int, ...]:
        weight = inputs[0].shape[-1] * self.out
        return (weight, self.out) if self.bias else (weight,)


class Norm(LayerKind, frozen=True):
    """A norm; ``affine`` ones have a weight and, but for ``rms``, a bias of each channel."""

    of: Literal["batch", "group", "layer", "rms"]
    affine: bool = True

    def _gives(self, inputs: Inputs) -> Feature:
        if self.of in ("batch", "group"):
            of_rank(inputs[0], _IMAGE)
        else:
            _flat(inputs[0])
        return inputs[0]

    def channels(self, inputs: Inputs) -> int:
        """Return how many channels have a weight."""
        return inputs[0].shape[0 if self.of in ("batch", "group") else -1]

    def _tensors(self, inputs: Inputs) -> tuple[int, ...]:
        if not self.affine:
            return ()
        return (self.channels(inputs),) * (1 if self.of == "rms" else 2)

    def buffers(self, inputs: Inputs) -> tuple[int, int]:
        """Return the bytes of running means and variances, and of the counter of batches."""
        return (2 * self.channels(inputs) * _F32, _COUNTER) if self.of == "batch" else (0, 0)


class Activation(LayerKind, frozen=True):
    """A function of each element; ``geglu`` and ``swiglu`` multiply one half by that of another."""

    of: Literal["relu", "gelu", "silu", "sigmoid", "geglu", "swiglu"]

    @property
    def is_gated(self) -> bool:
        """Whether it gives half of the width."""
        return self.of in ("geglu", "swiglu")

    def _gives(self, inputs: Inputs) -> Feature:
        if not self.is_gated:
            return inputs[0]
        width = _flat(inputs[0])
        if width % 2:
            raise MisfitError("of", f"{self.of} halves a width of {width}", "give an even width")
        return Feature((*inputs[0].shape[:-1], width // 2), inputs[0].copies)


class Add(LayerKind, frozen=True):
    """The sum of layers, such as a residual connection; a vector is added to each place."""

    least_inputs: ClassVar[int] = 2
    most_inputs: ClassVar[int] = 16

    def _gives(self, inputs: Inputs) -> Feature:
        for other in inputs[1:]:
            spread_over(inputs[0], other)
        return inputs[0]


class Multiply(Add, frozen=True):
    """The product of layers; a vector multiplies each place."""


class Modulate(LayerKind, frozen=True):
    """``x * (1 + scale) + shift`` from ``x``, a shift and a scale (adaptive norms)."""

    least_inputs: ClassVar[int] = 3
    most_inputs: ClassVar[int] = 3

    def _gives(self, inputs: Inputs) -> Feature:
        for other in inputs[1:]:
            spread_over(inputs[0], other)
        return inputs[0]


class Concat(LayerKind, frozen=True):
    """Images joined by their channels, others by their width."""

    least_inputs: ClassVar[int] = 2
    most_inputs: ClassVar[int] = 64

    def _gives(self, inputs: Inputs) -> Feature:
        first = inputs[0]
        axis = 0 if len(first.shape) == _IMAGE else len(first.shape) - 1
        rest = _without(first, axis)
        for other in inputs[1:]:
            if len(other.shape) != len(first.shape) or _without(other, axis) != rest:
                what = f"{first.told()} and {other.told()} cannot be joined"
                raise MisfitError("from", what, "all sizes but the channels have to be equal")
        shape = list(first.shape)
        shape[axis] = sum(one.shape[axis] for one in inputs)
        return Feature(tuple(shape), first.copies)


class Pool(LayerKind, frozen=True):
    """The largest or the mean of each window of an image; ``kernel = 0`` takes all of it."""

    of: Literal["max", "average"]
    kernel: _Small = 0
    stride: _Small = 0
    padding: _Small = 0

    def _gives(self, inputs: Inputs) -> Feature:
        channels, height, width = of_rank(inputs[0], _IMAGE)
        if not self.kernel:
            return Feature((channels,), inputs[0].copies)
        stride = self.stride or self.kernel
        sides = [(side + 2 * self.padding - self.kernel) // stride + 1 for side in (height, width)]
        if min(sides) < 1:
            what = f"{self.kernel} is larger than the padded image, {height} x {width}"
            most = min(height, width) + 2 * self.padding
            raise MisfitError("kernel", what, f"{most} or less would fit")
        return Feature((channels, *sides), inputs[0].copies)


class Upsample(LayerKind, frozen=True):
    """An image with each pixel repeated."""

    scale: _Count = 2

    def _gives(self, inputs: Inputs) -> Feature:
        channels, height, width = of_rank(inputs[0], _IMAGE)
        return Feature((channels, height * self.scale, width * self.scale), inputs[0].copies)


class Attention(LayerKind, frozen=True):
    """The core of attention, from query, key and value side by side, or from two layers.

    One input has the width of three, of which each head has its part. Of two the first has the
    queries, and the second keys and values side by side.
    """

    heads: _Count
    most_inputs: ClassVar[int] = 2

    def _gives(self, inputs: Inputs) -> Feature:
        tokens, width = of_rank(inputs[0], _SEQUENCE)
        if len(inputs) == 1:
            if width % 3:
                raise MisfitError(
                    "from", f"a width of {width} is not query, key and value", "give three"
                )
            width //= 3
        else:
            _, both = of_rank(inputs[1], _SEQUENCE)
            if both != 2 * width:
                what = f"keys and values have a width of {both}, and queries of {width}"
                raise MisfitError("from", what, f"{2 * width} would fit")
        if width % self.heads:
            fits = ", ".join(str(n) for n in _divisors(width)[:12])
            what = f"{self.heads} does not divide the width, {width}"
            raise MisfitError("heads", what, f"one of {fits} would")
        return Feature((tokens, width), inputs[0].copies)


class Tokens(LayerKind, frozen=True):
    """An image as a sequence: a token of each pixel, as wide as the image has channels."""

    def _gives(self, inputs: Inputs) -> Feature:
        channels, height, width = of_rank(inputs[0], _IMAGE)
        return Feature((height * width, channels), inputs[0].copies)


class Image(LayerKind, frozen=True):
    """A sequence as a square image, whose tokens are patches of so many pixels a side."""

    patch: _Count = 1

    def _gives(self, inputs: Inputs) -> Feature:
        tokens, width = of_rank(inputs[0], _SEQUENCE)
        side = isqrt(tokens)
        if side * side != tokens:
            what = f"{tokens} tokens form no square image"
            raise MisfitError("from", what, f"{side * side} or {(side + 1) ** 2} would")
        if width % self.patch**2:
            what = f"a token of {width} is no patch of {self.patch} x {self.patch}"
            raise MisfitError("patch", what, "its square has to divide the width")
        pixels = side * self.patch
        return Feature((width // self.patch**2, pixels, pixels), inputs[0].copies)


class ClassToken(LayerKind, frozen=True):
    """A sequence with learned tokens before it."""

    count: _Count = 1

    def _gives(self, inputs: Inputs) -> Feature:
        tokens, width = of_rank(inputs[0], _SEQUENCE)
        return Feature((tokens + self.count, width), inputs[0].copies)

    def _tensors(self, inputs: Inputs) -> tuple[int, ...]:
        return (self.count * inputs[0].shape[-1],)


class Positions(LayerKind, frozen=True):
    """A sequence with learned positions, or fixed ones, which are parameters without gradients."""

    trained: bool = True

    def _gives(self, inputs: Inputs) -> Feature:
        of_rank(inputs[0], _SEQUENCE)
        return inputs[0]

    def _tensors(self, inputs: Inputs) -> tuple[int, ...]:
        return (inputs[0].elements,) if self.trained else ()

    def _fixed(self, inputs: Inputs) -> int:
        return 0 if self.trained else inputs[0].elements


class FirstToken(LayerKind, frozen=True):
    """The first token of a sequence, as a vector."""

    is_view: ClassVar[bool] = True

    def _gives(self, inputs: Inputs) -> Feature:
        _, width = of_rank(inputs[0], _SEQUENCE)
        return Feature((width,), inputs[0].copies)


class Flatten(LayerKind, frozen=True):
    """All of it, as a vector."""

    is_view: ClassVar[bool] = True

    def _gives(self, inputs: Inputs) -> Feature:
        return Feature((prod(inputs[0].shape),), inputs[0].copies)


class Slice(LayerKind, frozen=True):
    """One of several equal parts of a width, counted from 0."""

    part: _Small
    parts: _Count

    is_view: ClassVar[bool] = True

    def _gives(self, inputs: Inputs) -> Feature:
        width = _flat(inputs[0])
        if width % self.parts:
            fits = ", ".join(str(n) for n in _divisors(width)[:12])
            what = f"{self.parts} does not divide the width, {width}"
            raise MisfitError("parts", what, f"one of {fits} would")
        if self.part >= self.parts:
            what = f"{self.part} is none of the {self.parts} parts"
            raise MisfitError("part", what, f"state 0 to {self.parts - 1}")
        return Feature((*inputs[0].shape[:-1], width // self.parts), inputs[0].copies)


class EmbeddingBag(LayerKind, frozen=True):
    """Sums of rows of tables, one for each table; its input are indices, of which it takes none."""

    # rows, width: rows of each table, and the width of all
    rows: Annotated[list[_Count], msgspec.Meta(min_length=1, max_length=1 << 16)]
    width: _Count
    # rows that a sample takes of each table: one number, or one for each
    lookups: _Count | list[_Count] = 1
    # whether ranks share the tables (model parallel), each with some for the samples of all
    spread: bool = False
    least_inputs: ClassVar[int] = 0
    most_inputs: ClassVar[int] = 0

    @property
    def of_tables(self) -> list[int]:
        """Rows that a sample takes of each table."""
        if isinstance(self.lookups, int):
            return [self.lookups] * len(self.rows)
        return self.lookups

    def _gives(self, inputs: Inputs) -> Feature:
        if len(self.of_tables) != len(self.rows):
            what = f"there are {len(self.of_tables)} numbers for {len(self.rows)} tables"
            raise MisfitError("lookups", what, "state one number, or one for each table")
        several = len(self.rows) > 1
        return Feature((len(self.rows), self.width) if several else (self.width,))

    def _tensors(self, inputs: Inputs) -> tuple[int, ...]:
        return tuple(rows * self.width for rows in self.rows)


class Interaction(LayerKind, frozen=True):
    """Products of all pairs of embeddings and a vector of the same width, after that vector."""

    least_inputs: ClassVar[int] = 2
    most_inputs: ClassVar[int] = 2

    def _gives(self, inputs: Inputs) -> Feature:
        (width,) = of_rank(inputs[0], _VECTOR)
        count, of_table = of_rank(inputs[1], _SEQUENCE)
        if of_table != width:
            what = f"the vector has a width of {width}, and the embeddings of {of_table}"
            raise MisfitError("from", what, "make them equal")
        return Feature((width + (count + 1) * count // 2,), inputs[0].copies)


class RoiAlign(LayerKind, frozen=True):
    """Regions of an image, or each of one of several, sampled to a square of pixels."""

    regions: _Count
    size: _Count
    most_inputs: ClassVar[int] = 8

    def _gives(self, inputs: Inputs) -> Feature:
        channels = {of_rank(one, _IMAGE)[0] for one in inputs}
        if len(channels) > 1:
            what = f"the images have {', '.join(map(str, sorted(channels)))} channels"
            raise MisfitError("from", what, "make them equal")
        shape = inputs[0].shape[0], self.size, self.size
        return Feature(shape, inputs[0].copies * self.regions)


class Loss(LayerKind, frozen=True):
    """The loss of what a layer gives, in training."""

    of: Literal["cross_entropy", "squares"] = "cross_entropy"

    def _gives(self, inputs: Inputs) -> Feature:
        return Feature(())


KINDS: dict[str, type[LayerKind]] = {
    "conv": Conv, "linear": Linear, "norm": Norm, "activation": Activation, "add": Add,
    "multiply": Multiply, "modulate": Modulate, "concat": Concat, "pool": Pool,
    "upsample": Upsample, "attention": Attention, "tokens": Tokens, "image": Image,
    "class_token": ClassToken, "positions": Positions, "first_token": FirstToken,
    "flatten": Flatten, "slice": Slice, "embedding_bag": EmbeddingBag,
    "interaction": Interaction, "roi_align": RoiAlign, "loss": Loss,
}  # fmt: skip
"""The kinds, by the name that a file gives them."""


def of_rank(feature: Feature, rank: int) -> tuple[int, ...]:
    """Return the sizes of an image (3), a sequence (2) or a vector (1).

    - Raises MisfitError if it is something else.
    """
    if len(feature.shape) != rank:
        what = f"it takes {_NAMES[rank]}, and is given {_NAMES[len(feature.shape)]}"
        remedies = {
            (_IMAGE, _VECTOR): "put a pool or flatten before it",
            (_IMAGE, _SEQUENCE): "put tokens before it",
            (_SEQUENCE, _IMAGE): "put image before it",
            (_SEQUENCE, _VECTOR): "put first_token or flatten before it",
        }
        remedy = remedies.get((len(feature.shape), rank), "name another layer in from")
        raise MisfitError("from", f"{what}, {feature.told()}", remedy)
    return feature.shape


def spread_over(whole: Feature, other: Feature) -> bool:
    """Return whether a vector is spread over all places of a tensor, which else has its shape.

    - Raises MisfitError if neither holds.
    """
    if other.shape == whole.shape and other.copies == whole.copies:
        return False
    width = whole.shape[0 if len(whole.shape) == _IMAGE else -1] if whole.shape else 0
    if other.shape == (width,) and other.copies in (1, whole.copies):
        return True
    what = f"{whole.told()} and {other.told()} do not fit together"
    raise MisfitError("from", what, f"{whole.told()}, or a vector of {width}, would")


def _flat(feature: Feature) -> int:
    """Return the width of a vector or of the tokens of a sequence."""
    if len(feature.shape) == _IMAGE:
        of_rank(feature, _VECTOR)
    return feature.shape[-1] if feature.shape else of_rank(feature, _VECTOR)[0]


def _without(feature: Feature, axis: int) -> tuple[int, ...]:
    return (*feature.shape[:axis], *feature.shape[axis + 1 :], feature.copies)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, min(isqrt(number), 1 << 16) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
