"""FLOPs of a layer's operations against Calculon's tables (golden/calculon)."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import polars as pl
from _llm_goldens import flops_of, golden, stage_nodes
from _report import Checks, Tally

from nadi.models import LanguageModel

__all__ = ["calculon"]

# Nadi's name of an operation, and Calculon's; query, key and value are one product, and _AG and _RS
# are the products that Calculon overlaps with a collective
_OPERATIONS = {
    "attention.qkv": ("Query", "Key", "Value", "QKV_AG", "Query_AG"),
    "attention.scores": ("Multihead_Key_Query",),
    "attention.softmax": ("Multihead_SoftMax",),
    "attention.values": ("Multihead_Attn",),
    "attention.output": ("MLP", "MLP_RS"),
    "attention.norm": ("LayerNorm",),
    "attention.residual": ("Residual",),
    "mlp.norm": ("LayerNorm",),
    "mlp.up": ("Mlp1", "Mlp1_AG"),
    "mlp.activation": ("GeLU",),
    "mlp.down": ("Mlp2", "Mlp2_RS"),
    "mlp.residual": ("Residual",),
}
_PASSES = {"fw": "", "agrad": ".input_gradient", "wgrad": ".weight_gradient"}
_NOT_GENERATED = {
    "DropOut": "dropout: Nadi generates none",
    "Fork": "sums of gradients after a fork: Nadi has one sum per residual, and fuses the others",
    "_F": "additions of a reduction: Nadi leaves them to the collective",
    "_G": "additions of a reduction: Nadi leaves them to the collective",
}
_RESIDUAL = "residual backward: 2 per element, Nadi 1 (the sum of both gradients)"
_ROUNDED = "optimizer: fractions of a parameter per rank, Nadi rounds up"


def calculon(checks: Checks) -> None:
    """Compare each operation of a layer, forward and backward, and the optimizer of a layer."""
    tallies = {what: Tally() for what in (*_OPERATIONS, "optimizer")}
    others = Tally()
    for point in golden("calculon", "points.json.gz"):
        if point["status"] == "ok":
            _operations(point, tallies)
            _optimizer(point, tallies["optimizer"])
            for layer in point["layers"]:
                _other(layer, others)
    for what, tally in tallies.items():
        checks.add_tally(f"FLOPs of {what} in Calculon", tally)
    checks.add_tally("FLOPs of what only Calculon counts", others)


def _model(point: dict[str, Any], layers: int) -> LanguageModel:
    app, execution = point["app"], point["execution"]
    return LanguageModel(
        layers=layers, hidden=app["hidden"], heads=app["attn_heads"], head_dim=app["attn_size"],
        kv_heads=1 if execution["attention_type"] == "multiquery" else app["attn_heads"],
        ffn=app["feedforward"], norm="layernorm", position="none", vocab=1024,
        sequence=app["seq_size"],
    )  # fmt: skip


@cache
def _nodes(model: LanguageModel, plan: tuple[tuple[str, Any], ...]) -> pl.DataFrame:
    return stage_nodes(model, **dict(plan), attention="unfused")


def _plan(point: dict[str, Any]) -> dict[str, Any]:
    execution = point["execution"]
    shared = execution["tensor_par_comm_type"] == "rs_ag" and execution["tensor_par"] > 1
    return {
        "tp": execution["tensor_par"], "micro_batch": execution["microbatch_size"],
        "sequence_parallel": shared, "inference": "" if execution["training"] else "prefill",
    }  # fmt: skip


def _operations(point: dict[str, Any], tallies: dict[str, Tally]) -> None:
    nodes = _nodes(_model(point, 1), tuple(_plan(point).items()))
    for what in _OPERATIONS:
        stated = [one for one in point["layers"] if one["name"] in _names(what)]
        for kind, suffix in _PASSES.items():
            if kind != "fw" and not point["execution"]["training"]:
                continue
            expected = round(sum(one[f"{kind}_flops"] for one in stated))
            found = flops_of(nodes, re.escape(f"layers.0.{what}{suffix}"))
            halved = "residual" in what and kind == "agrad" and expected == 2 * found
            tallies[what].add(
                exact=found == expected, rule=_RESIDUAL if halved else "",
                detail=f"{point['id']} {kind}: {found} for {expected}",
            )  # fmt: skip


def _names(what: str) -> set[str]:
    block = "AttnBlock" if what.startswith("attention") else "MlpBlock"
    return {f"{block}_{name}" for name in _OPERATIONS[what]}


def _optimizer(point: dict[str, Any], tally: Tally) -> None:
    """Compare what a layer more adds to the optimizer."""
    execution = point["execution"]
    if not execution["training"]:
        return
    shards = execution["data_par"] if execution["optimizer_sharding"] else 1
    plan = {**_plan(point), "dp": shards, "zero": int(shards > 1)}
    of_two, of_one = (
        flops_of(_nodes(_model(point, layers), tuple(plan.items())), "optimizer")
        for layers in (2, 1)
    )
    found, expected = of_two - of_one, sum(one["optim_flops"] for one in point["layers"])
    close = abs(found - expected) < 11
    tally.add(exact=found == expected, rule=_ROUNDED if close else "",
              detail=f"{point['id']}: {found} for {expected}")  # fmt: skip


def _other(layer: dict[str, Any], tally: Tally) -> None:
    if any(layer["name"] in _names(what) for what in _OPERATIONS):
        return
    rule = next((rule for end, rule in _NOT_GENERATED.items() if layer["name"].endswith(end)), "")
    tally.add(rule=rule, detail=layer["name"])
