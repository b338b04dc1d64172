"""Files of networks: shapes and parameters follow from layers, and what does not fit is refused."""

from __future__ import annotations

import msgspec
import pytest

import nadi
from nadi.errors import FormatError
from nadi.models import NeuralNetwork
from nadi.models.networks import network_file
from nadi.models.networks.layer_kinds import KINDS, Feature
from nadi.models.networks.network_file import network_from, parse_network

CONV = {"kind": "conv", "out": 8, "kernel": 3}


def made(*layers: dict, **rest: object) -> NeuralNetwork:
    """Make a network for small images."""
    return network_from({"inputs": {"image": [3, 32, 32]}, "layers": list(layers), **rest}, "net")


@pytest.mark.parametrize("name", nadi.models.shipped_networks())
def test_shipped_networks_have_the_published_parameters(name: str) -> None:
    network = nadi.models.load_network(name)
    assert network.about
    assert network.source
    if network.published is not None:
        difference = abs(network.total_parameters - network.published.parameters)
        assert difference <= network.published.tolerance


@pytest.mark.parametrize(
    ("kind", "keys", "inputs", "output", "parameters"),
    [
        ("conv", {"out": 8, "kernel": 3}, [(3, 9, 7)], (8, 9, 7), 8 * 27 + 8),
        ("conv", {"out": 8, "kernel": 3, "stride": 2}, [(3, 9, 7)], (8, 5, 4), 8 * 27 + 8),
        ("conv", {"out": 6, "kernel": 4, "padding": 0, "groups": 3, "bias": False},
         [(3, 9, 7)], (6, 6, 4), 6 * 16),
        ("conv", {"out": 5, "kernel": 2, "stride": 2, "transposed": True}, [(3, 4, 4)],
         (5, 8, 8), 3 * 5 * 4 + 5),
        ("linear", {"out": 5}, [(7, 3)], (7, 5), 20),
        ("norm", {"of": "batch"}, [(3, 9, 7)], (3, 9, 7), 6),
        ("norm", {"of": "rms"}, [(7, 5)], (7, 5), 5),
        ("norm", {"of": "layer", "affine": False}, [(7, 5)], (7, 5), 0),
        ("activation", {"of": "geglu"}, [(7, 6)], (7, 3), 0),
        ("add", {}, [(3, 4, 4), (3,)], (3, 4, 4), 0),
        ("multiply", {}, [(7, 6), (6,)], (7, 6), 0),
        ("modulate", {}, [(7, 6), (6,), (6,)], (7, 6), 0),
        ("concat", {}, [(3, 4, 4), (5, 4, 4)], (8, 4, 4), 0),
        ("concat", {}, [(3,), (5,)], (8,), 0),
        ("pool", {"of": "average"}, [(3, 4, 4)], (3,), 0),
        ("pool", {"of": "max", "kernel": 3, "stride": 2, "padding": 1}, [(3, 8, 8)],
         (3, 4, 4), 0),
        ("upsample", {}, [(3, 4, 5)], (3, 8, 10), 0),
        ("attention", {"heads": 2}, [(7, 12)], (7, 4), 0),
        ("attention", {"heads": 2}, [(7, 4), (9, 8)], (7, 4), 0),
        ("tokens", {}, [(3, 4, 5)], (20, 3), 0),
        ("image", {"patch": 2}, [(9, 8)], (2, 6, 6), 0),
        ("class_token", {}, [(9, 8)], (10, 8), 8),
        ("positions", {}, [(9, 8)], (9, 8), 72),
        ("positions", {"trained": False}, [(9, 8)], (9, 8), 72),
        ("first_token", {}, [(9, 8)], (8,), 0),
        ("flatten", {}, [(9, 8)], (72,), 0),
        ("slice", {"part": 1, "parts": 2}, [(9, 8)], (9, 4), 0),
        ("embedding_bag", {"rows": [5, 7], "width": 4}, [], (2, 4), 48),
        ("embedding_bag", {"rows": [5], "width": 4}, [], (4,), 20),
        ("interaction", {}, [(4,), (3, 4)], (4 + 6,), 0),
        ("roi_align", {"regions": 5, "size": 7}, [(3, 9, 9)], (3, 7, 7), 0),
        ("loss", {}, [(9,)], (), 0),
    ],
)  # fmt: skip
def test_shapes_and_parameters_of_each_kind(
    kind: str, keys: dict, inputs: list[tuple[int, ...]], output: tuple[int, ...], parameters: int
) -> None:
    layer = msgspec.convert(keys, KINDS[kind])
    given = [Feature(shape) for shape in inputs]
    assert layer.gives(given).shape == output
    assert sum(layer.tensors(given)) + layer.fixed(given) == parameters


def test_blocks_stand_for_layers_that_are_written_out() -> None:
    block = {
        "needs": ["out"],
        "layers": [
            {"name": "a", "kind": "conv", "out": "$out", "kernel": 3},
            {"name": "sum", "kind": "add", "from": ["a", "input"]},
        ],
    }
    use = {"name": "twice", "block": "b", "repeat": 2, "with": {"out": 8}}
    short = made(CONV | {"name": "first"}, use, blocks={"b": block})
    long = made(
        CONV | {"name": "first"},
        CONV | {"name": "a"}, {"name": "sum", "kind": "add", "from": ["a", "first"]},
        CONV | {"name": "c"}, {"kind": "add", "from": ["c", "sum"]},
    )  # fmt: skip
    names = ["first", "twice.0.a", "twice.0.sum", "twice.1.a", "twice.1.sum"]
    assert [layer.name for layer in short.layers] == names
    for one, other in zip(short.layers, long.layers, strict=True):
        assert one.kind == other.kind
        assert (one.sources, one.output) == (other.sources, other.output)


WRONG = [
    ([CONV | {"sride": 2}], "$.layers[0]", "known keys: out, kernel, stride"),
    ([CONV | {"kind": "covn"}], "$.layers[0].kind", "known: conv, linear"),
    ([CONV, {"kind": "linear", "out": 5}], "$.layers[1].from", "put a pool or flatten before it"),
    ([CONV | {"padding": 0, "kernel": 99}], "$.layers[0].kernel", "32 or less would fit"),
    ([CONV | {"groups": 2}], "$.layers[0].groups", "one of 1 would"),
    ([CONV | {"from": "x"}], "$.layers[0].from", "the last ones: image"),
    ([CONV | {"repeat": 1 << 20}], "$.layers[0].repeat", "shows all keys"),
    ([CONV | {"out": 1 << 30, "kernel": 1 << 12, "padding": 1 << 12}], "$.layers[0]", "correct"),
    ([{"kind": "norm", "of": "x"}], "$.layers[0].of", "batch, group, layer, rms"),
    ([{"kind": "tokens"}, {"kind": "attention", "heads": 2}], "$.layers[1].heads", "1 would"),
    ([{"kind": "tokens"}, {"kind": "image", "patch": 2}], "$.layers[1].patch", "divide the width"),
    ([{"kind": "flatten"}], "$.layers", "add one"),
    ([{"out": 5}], "$.layers[0]", "kinds: conv"),
    ([{"block": "b", "with": {"width": 1}}], "$.layers[0].with", "block b needs out"),
    ([{"block": "b", "with": {"out": 0}}], "$.blocks.b.layers[0].out", "shows all keys"),
    ([{"block": "c"}], "$.layers[0].block", "known: b"),
    ([{"block": "b", "out": 1}], "$.layers[0].out", "values of the block stand in with"),
    ([CONV | {"out": "$out"}], "$.layers[0].out", "add it to needs"),
    ([CONV | {"name": "image"}], "$.layers[0].name", "give another name"),
    ([CONV | {"name": "a"}, CONV | {"weights": "a"}], "$.layers[1].weights", "same kind and sizes"),
    ([CONV | {"weights": "a"}], "$.layers[0].weights", "the last ones: image"),
    ([{"block": "b", "with": {"out": 1}, "weights": "a"}], "$.layers[0].weights", "inside"),
]


@pytest.mark.parametrize(("layers", "path", "remedy"), WRONG)
def test_what_does_not_fit_is_refused_with_what_would(
    layers: list[dict], path: str, remedy: str
) -> None:
    block = {"needs": ["out"], "layers": [CONV | {"out": "$out"}]}
    with pytest.raises(FormatError) as caught:
        made(*layers, blocks={"b": block})
    assert str(caught.value).startswith(f"net: {path}: ")
    assert remedy in caught.value.remedy


def test_blocks_that_use_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_file, "_MOST_LAYERS", 64)
    with pytest.raises(FormatError, match="circle"):
        made({"block": "b"}, blocks={"b": {"layers": [{"block": "b"}]}})
    many = {"layers": [{"kind": "flatten", "repeat": 40}]}
    with pytest.raises(FormatError, match="64 layers"):
        made({"block": "b", "repeat": 40}, blocks={"b": many})


def test_a_file_is_read_by_its_suffix() -> None:
    text = b'inputs.image = [3, 8, 8]\n[[layers]]\nkind = "pool"\nof = "max"\n'
    network = parse_network(text, ".toml", "small.toml")
    assert network.name == "small.toml"
    assert network.layers[0].output.shape == (3,)
