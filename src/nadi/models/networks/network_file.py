"""The file of a network: layers one after the other, and blocks of layers that it repeats.

A layer takes what the one before it gives, or what the layers named in ``from`` do. In a block,
``input`` is what the block is given, ``$name`` stands for a value that its use states in ``with``,
and other names are layers of the block or of the outermost level.

Networks as values: layers with inputs, shapes and parameters, in the order of their use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NoReturn

import msgspec

from nadi.errors import FormatError
from nadi.files.settings_text import convert_settings, parse_settings, remedy_for
from nadi.models.networks.layer_kinds import (
    KINDS,
    EmbeddingBag,
    Feature,
    LayerKind,
    Loss,
    MisfitError,
)


class NetworkCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source says about a network, to compare with what follows."""

    # parameters, tolerance: number of parameters, and by how much its rounding may differ; 0 is an
    # exact count
    parameters: int = 0
    tolerance: int = 0
    # macs, macs_tolerance: multiplications and additions of a sample's forward, a pair as one, in
    # convolutions and matrix products; 0 if the source does not say
    macs: int = 0
    macs_tolerance: int = 0
    # macs_attention, macs_layer_norm: whether the source counts the two products of attention; and
    # how much it adds for each element of a layer norm
    macs_attention: bool = True
    macs_layer_norm: int = 0


@dataclass(frozen=True)
class NetworkLayer:
    """A layer of a network."""

    name: str  # such as ``layer1.0.conv2``: block by block
    # part, number: the outermost of these, and the number of its repetition among all of them
    part: str
    number: int
    kind: LayerKind  # what it does
    # the layers that it takes its input from; -1 and less are inputs of the network, from the first
    sources: tuple[int, ...]
    # inputs, output: their shapes, and that of what it gives
    inputs: tuple[Feature, ...]
    output: Feature
    # tensors, fixed: sizes of its own parameters; and how many more it has that are not trained
    tensors: tuple[int, ...]
    fixed: int
    weights: int = -1  # the layer whose parameters it uses; -1 for its own

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


_SHIPPED = "nadi/data/networks"
_MOST_LAYERS = 1 << 14
_MOST_DEEP = 32
_MOST_ELEMENTS = 1 << 40  # of what a layer gives for a sample, and of its parameters
_USE_KEYS = ("name", "from", "weights", "repeat", "block", "with")
_Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
_Shape = Annotated[list[_Size], msgspec.Meta(min_length=1, max_length=3)]
_Repeat = Annotated[int, msgspec.Meta(ge=1, le=1 << 12)]


class _Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers that are used together, and the names of the values that each use states."""

    layers: list[dict[str, Any]]
    needs: list[str] = []


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file; unknown keys are errors."""

    inputs: Annotated[dict[str, _Shape], msgspec.Meta(min_length=1)]
    layers: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    name: str = ""
    about: str = ""
    source: str = ""
    blocks: dict[str, _Block] = {}
    published: NetworkCounts | None = None


class _Use(msgspec.Struct, frozen=True, rename={"sources": "from", "values": "with"}):
    """What an entry states beside the keys of its kind."""

    name: str = ""
    sources: str | list[str] = []
    weights: str = ""
    repeat: _Repeat = 1
    block: str = ""
    values: dict[str, Any] = {}


def parse_network(content: bytes, suffix: str, name: str) -> NeuralNetwork:
    """Parse the content of a file.

    - ``suffix``: ``.toml``, ``.yaml``, ``.yml`` or ``.json``.
    - ``name``: Of the file; errors begin with it, and it is the network's name if the file states
      none.
    - Raises FormatError if it is invalid; the message names the JSON path.
    - Raises UsageError if it is YAML and PyYAML is not installed.
    """
    return network_from(parse_settings(content, suffix, name, "network"), name)


def network_from(value: Any, name: str = "network") -> NeuralNetwork:
    """Check a network that is given as a dict with the keys of a file.

    - Raises FormatError if a key is unknown, a value is invalid, or layers do not fit together; the
      message names the JSON path, and for layers within a block which use of it is meant.
    """
    found = convert_settings(
        value, _File, name, lambda what, path: remedy_for(_File, what, path, _SHIPPED)
    )
    inputs = {one: Feature(tuple(shape)) for one, shape in found.inputs.items()}
    maker = _Maker(name, found, inputs)
    first_input = -1
    scope = _Scope("$.layers", {}, first_input, "", maker.outermost)
    maker.add_all(found.layers, scope, depth=0)
    if all(layer.kind.is_view or isinstance(layer.kind, Loss) for layer in maker.layers):
        raise FormatError(f"{name}: $.layers", "none of them computes anything", "add one")
    return NeuralNetwork(
        found.name or name, found.about, found.source, inputs, tuple(maker.layers),
        found.published,
    )  # fmt: skip


@dataclass(frozen=True)
class _Scope:
    """Where entries stand: their path in the file, and what names mean there."""

    path: str  # of the list of entries
    values: Mapping[str, Any]  # of ``$names``
    given: int  # the layer whose output the block is given
    prefix: str  # of the names of its layers
    # the layers that may be named, as they are made
    names: dict[str, int] = field(default_factory=dict)


@dataclass
class _Maker:
    """Makes the layers, block by block."""

    file: str
    content: _File
    inputs: Mapping[str, Feature]
    layers: list[NetworkLayer] = field(default_factory=list)
    number: int = -1
    part: str = ""

    def __post_init__(self) -> None:
        self.outermost = {name: -1 - place for place, name in enumerate(self.inputs)}

    def add_all(self, entries: Sequence[Mapping[str, Any]], scope: _Scope, depth: int) -> int:
        """Add the layers of a list of entries, and return the last one."""
        before = scope.given
        for place, entry in enumerate(entries):
            path = f"{scope.path}[{place}]"
            use, rest = self._read(entry, scope, path)
            name = self._name(use, rest, scope, path)
            sources = self._sources(use, scope, before, path)
            for turn in range(use.repeat):
                one = f"{name}.{turn}" if use.repeat > 1 else name
                if not depth:
                    self.part, self.number = name, self.number + 1
                before = self._add(use, rest, (scope, f"{scope.prefix}{one}", path, sources), depth)
                sources = [before]
            scope.names[name] = before
        return before

    def _read(
        self, entry: Mapping[str, Any], scope: _Scope, path: str
    ) -> tuple[_Use, dict[str, Any]]:
        """Return what an entry states of its use, and the keys of its kind, with values put in."""
        filled = {key: self._filled(value, scope, f"{path}.{key}") for key, value in entry.items()}
        own = {key: value for key, value in filled.items() if key in _USE_KEYS}
        use = self._converted(own, _Use, path)
        rest = {key: value for key, value in filled.items() if key not in _USE_KEYS}
        if use.block and rest:
            key = next(iter(rest))
            self._refuse(
                f"{path}.{key}", "an entry that uses a block has no such key",
                f"known keys: {', '.join(_USE_KEYS)}; values of the block stand in with",
            )  # fmt: skip
        if not use.block and "kind" not in rest:
            self._refuse(path, "it states neither kind nor block", f"kinds: {', '.join(KINDS)}")
        if not use.block and use.values:
            self._refuse(f"{path}.with", "it is for a block, and none is used", "leave it out")
        return use, rest

    def _filled(self, value: Any, scope: _Scope, path: str) -> Any:
        """Return a value with what its ``$names`` stand for."""
        if isinstance(value, list):
            return [self._filled(one, scope, path) for one in value]
        if isinstance(value, dict):
            return {key: self._filled(one, scope, f"{path}.{key}") for key, one in value.items()}
        if not isinstance(value, str) or not value.startswith("$"):
            return value
        if value[1:] not in scope.values:
            known = ", ".join(f"${name}" for name in scope.values) or "none"
            self._refuse(path, f"{value!r} has no value here", f"known: {known}; add it to needs")
        return scope.values[value[1:]]

    def _name(self, use: _Use, rest: Mapping[str, Any], scope: _Scope, path: str) -> str:
        if not use.name:
            wished = str(use.block or rest["kind"])
            count = 2
            name = wished
            while name in scope.names:
                name, count = f"{wished}_{count}", count + 1
            return name
        if use.name in scope.names or use.name == "input":
            self._refuse(f"{path}.name", f"{use.name!r} is taken", "give another name")
        return use.name

    def _sources(self, use: _Use, scope: _Scope, before: int, path: str) -> list[int]:
        named = [use.sources] if isinstance(use.sources, str) else use.sources
        if not named:
            return [before]
        return [self._named(one, scope, f"{path}.from") for one in named]

    def _named(self, name: str, scope: _Scope, path: str) -> int:
        known = {**self.outermost, **scope.names, "input": scope.given}
        if name not in known:
            near = ", ".join(list(known)[-12:])
            what = f"no layer before it is called {name!r}"
            self._refuse(path, what, f"the last ones: {near}")
        return known[name]

    def _add(
        self, use: _Use, rest: Mapping[str, Any],
        place: tuple[_Scope, str, str, list[int]], depth: int,
    ) -> int:  # fmt: skip
        """Add a layer or the layers of a block, once."""
        scope, name, path, sources = place
        if not use.block:
            owner = self._named(use.weights, scope, f"{path}.weights") if use.weights else -1
            return self._add_layer(rest, (name, path, sources), owner)
        if use.weights:
            self._refuse(f"{path}.weights", "a block has none of its own", "name them inside")
        block = self.content.blocks.get(use.block)
        if block is None:
            known = ", ".join(self.content.blocks) or "none"
            self._refuse(f"{path}.block", f"there is no block {use.block!r}", f"known: {known}")
        if depth >= _MOST_DEEP:
            self._refuse(f"{path}.block", "blocks use each other in a circle", "leave one out")
        if len(sources) > 1:
            what = "a block is given the output of one layer"
            self._refuse(f"{path}.from", what, "join layers before it, or name them inside")
        if set(use.values) != set(block.needs):
            needs = ", ".join(block.needs) or "none"
            what = f"it states {', '.join(use.values) or 'none'}"
            self._refuse(f"{path}.with", what, f"block {use.block} needs {needs}")
        inner = _Scope(f"$.blocks.{use.block}.layers", use.values, sources[0], f"{name}.")
        return self.add_all(block.layers, inner, depth + 1)

    def _add_layer(
        self, rest: Mapping[str, Any], place: tuple[str, str, list[int]], owner: int
    ) -> int:  # fmt: skip
        name, path, sources = place
        word = rest["kind"]
        if not isinstance(word, str) or word not in KINDS:
            what = f"there is no kind {word!r}"
            self._refuse(f"{path}.kind", what, f"known: {', '.join(KINDS)}")
        keys = {key: value for key, value in rest.items() if key != "kind"}
        kind = self._converted(keys, KINDS[word], path)
        chosen = sources[: kind.most_inputs] if kind.most_inputs == 0 else sources
        if not kind.least_inputs <= len(chosen) <= kind.most_inputs:
            what = f"{name}: it takes its input from {len(chosen)} layers"
            least, most = kind.least_inputs, kind.most_inputs
            fits = f"{least}" if least == most else f"{least} to {most}"
            self._refuse(f"{path}.from", what, f"{word} takes {fits}")
        given = tuple(self._feature(source) for source in chosen)
        try:
            output = kind.gives(given)
        except MisfitError as error:
            self._refuse(f"{path}.{error.key}", f"{name}: {error.what}", error.remedy)
        if len(self.layers) >= _MOST_LAYERS:
            self._refuse(path, f"there are over {_MOST_LAYERS} layers", "repeat less")
        own: tuple[tuple[int, ...], int] = kind.tensors(given), kind.fixed(given)
        if max(output.elements, sum(own[0])) > _MOST_ELEMENTS:
            what = f"{name}: it has or gives over {_MOST_ELEMENTS} numbers"
            self._refuse(path, what, "correct its sizes")
        if owner >= 0:
            own = self._shared(owner, kind, own, f"{path}.weights")
        of_part = self.part, self.number
        self.layers.append(
            NetworkLayer(name, *of_part, kind, tuple(chosen), given, output, *own, owner)
        )
        return len(self.layers) - 1

    def _shared(
        self, owner: int, kind: LayerKind, own: tuple[tuple[int, ...], int], path: str
    ) -> tuple[tuple[int, ...], int]:
        """Return the parameters of a layer that uses those of another: none."""
        other = self.layers[owner]
        if type(other.kind) is not type(kind) or other.tensors != own[0] or not own[0]:
            what = (
                f"{other.name} has parameters of {list(other.tensors)}, and this of {list(own[0])}"
            )
            self._refuse(path, what, "name a layer of the same kind and sizes, with its own")
        return (), 0

    def _feature(self, source: int) -> Feature:
        return (
            self.layers[source].output if source >= 0 else list(self.inputs.values())[-1 - source]
        )

    def _converted(self, value: Any, to: type[Any], path: str) -> Any:
        more = ("name", "from", "weights", "repeat") if issubclass(to, LayerKind) else ()
        return convert_settings(
            value, to, self.file,
            lambda what, at: remedy_for(to, what, at, _SHIPPED, more), path,
        )  # fmt: skip

    def _refuse(self, path: str, what: str, remedy: str) -> NoReturn:
        raise FormatError(f"{self.file}: {path}", what, remedy)
