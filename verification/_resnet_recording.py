"""ResNet-50 generated, against three steps that PyTorch recorded on one of two GPUs."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import polars as pl
from _report import SHARED, Checks

import nadi

__all__ = ["recording"]

_FOLDER = SHARED / "traces" / "gpu_resnet_pair"
# operators of PyTorch that stand for a layer's forward, by the kind of layer
_FORWARD = {
    "aten::conv2d": "conv", "aten::batch_norm": "norm", "aten::relu_": "activation",
    "aten::max_pool2d": "pool", "aten::adaptive_avg_pool2d": "pool", "aten::add_": "add",
    "aten::linear": "linear", "aten::cross_entropy_loss": "loss",
}  # fmt: skip
_BACKWARD = {
    "aten::convolution_backward": "conv", "aten::cudnn_batch_norm_backward": "norm",
    "aten::threshold_backward": "activation", "aten::max_pool2d_with_indices_backward": "pool",
    "aten::add_": "gradient_sum",
}  # fmt: skip
_BATCH = 32
_F32 = 4


class _Call(NamedTuple):
    """An operator that was recorded: its kind, and the shapes of its input tensors."""

    kind: str
    shapes: list[list[int]]


def recording(checks: Checks) -> None:
    """Compare operators, shapes, FLOPs, gradients and collectives, step by step."""
    host = _FOLDER / "host.json.gz"
    if not host.exists():
        checks.add(f"the recording {host}", False, "it is not there")
        return
    trace = nadi.read(str(host))
    names = trace.nodes["name"].cast(pl.String)
    begins = [row for row, name in enumerate(names) if name.startswith("ProfilerStep#")]
    ends = [*begins[1:], len(names)]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        forward, backward = _calls(trace, names, begin, end)
        _compare_forward(checks, number, forward)
        _compare_backward(checks, number, backward)
        _compare_collectives(checks, number, trace, begin, end)


def _calls(
    trace: nadi.Trace, names: pl.Series, begin: int, end: int
) -> tuple[list[_Call], list[_Call]]:
    """Return the operators of a step that stand for layers, forward and backward, in order."""
    tensors = trace.tensors["shape"].to_list()
    given = trace.operands.filter(~pl.col("is_output") & (pl.col("tensor") >= 0))
    shapes: dict[int, list[list[int]]] = {}
    for node, tensor in zip(given["node"], given["tensor"], strict=True):
        shapes.setdefault(node, []).append(tensors[tensor])
    parent = trace.nodes["parent"].to_list()
    forward, backward = [], []
    for row in range(begin, end):
        above = row
        while parent[above] >= 0 and not names[above].startswith("autograd::engine"):
            above = parent[above]
        is_backward = names[above].startswith("autograd::engine")
        known = _BACKWARD if is_backward else _FORWARD
        own = shapes.get(row, [])
        # counters of batches are numbers; gradients are accumulated into parameters once
        if names[row] in known and own and (names[row] != "aten::add_" or len(own[0]) == 4):
            (backward if is_backward else forward).append(_Call(known[names[row]], own))
    return forward, backward


def _layers() -> list[tuple[str, object]]:
    network = nadi.models.load_network("resnet50")
    kinds = nadi.models.network_statistics(network, batch=_BATCH).layers["kind"]
    return list(zip(kinds, network.layers, strict=True))


def _compare_forward(checks: Checks, step: int, calls: list[_Call]) -> None:
    layers = [one for one in _layers() if one[0] != "flatten"]
    held = 0
    for (kind, layer), call in zip(layers, calls, strict=False):
        shape = [_BATCH, *layer.inputs[0].shape]
        held += kind == call.kind and call.shapes[0] == shape
    largest = max(len(layers), len(calls))
    checks.add_many(f"operators of the forward of step {step}, and their input", held, largest)
    flops = nadi.models.network_statistics("resnet50", batch=_BATCH, dtype="float32").layers
    generated = dict(zip(flops["name"], flops["forward_flops"], strict=True))
    held = count = 0
    for (kind, layer), call in zip(layers, calls, strict=False):
        if kind not in ("conv", "linear"):
            continue
        weight = call.shapes[1]
        places = prod(layer.output.shape) // weight[0]
        held += generated[layer.name] == 2 * _BATCH * places * prod(weight)
        held += layer.tensors[0] * _F32 == prod(weight) * _F32
        count += 2
    what = f"FLOPs and gradient bytes of layers with products of step {step}"
    checks.add_many(what, held, count)


def _compare_backward(checks: Checks, step: int, calls: list[_Call]) -> None:
    """Compare the gradients: a convolution's are one operator, those of its input and weight."""
    job = nadi.models.network_job("resnet50", ranks=2, batch=_BATCH, dtype="float32")
    by_name = {layer.name: (kind, layer) for kind, layer in _layers()}
    found: list[tuple[str, list[int]]] = []
    for name in job.traces[0].nodes["name"].cast(pl.String):
        layer_name, _, what = name.rpartition(".")
        if what not in ("input_gradient", "weight_gradient", "gradient_sum"):
            continue
        kind, layer = by_name[layer_name]
        if what == "gradient_sum":
            kind = what
        shape = [_BATCH, *layer.output.shape]
        if (kind, shape) != (found[-1] if found else None) or kind == "gradient_sum":
            found.append((kind, shape))
    found = [one for one in found if one[0] in {*_BACKWARD.values()} and len(one[1]) == 4]
    held = sum(
        kind == call.kind and shape == call.shapes[0]
        for (kind, shape), call in zip(found, calls, strict=False)
    )
    largest = max(len(found), len(calls))
    checks.add_many(f"operators of the backward of step {step}, and their gradient", held, largest)


def _compare_collectives(
    checks: Checks, step: int, trace: nadi.Trace, begin: int, end: int
) -> None:
    is_sent = pl.col("comm_bytes") >= 0
    columns = pl.col("comm_type").cast(pl.String), pl.col("comm_bytes")
    recorded = trace.nodes[begin:end].filter(is_sent).select(columns).rows()
    job = nadi.models.network_job("resnet50", ranks=2, batch=_BATCH, dtype="float32")
    generated = job.traces[0].nodes.filter(is_sent).select(columns).rows()
    held = sum(a == b for a, b in zip(recorded, generated, strict=False))
    told = ", ".join(f"{kind} {size:,}" for kind, size in generated)
    largest = max(len(recorded), len(generated))
    checks.add_many(f"collectives of step {step}, their order and bytes", held, largest, told)
