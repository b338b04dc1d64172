"""Memory of a rank and FLOPs of a micro-batch against llm-analysis (golden/llm_analysis)."""

from __future__ import annotations

from typing import Any

from _llm_goldens import golden, product_flops, stage_nodes
from _report import Checks, Tally

import nadi
from nadi.models import LanguageModel

__all__ = ["llm_analysis"]

_ZERO = {"NONE": 0, "STAGE_1": 1, "STAGE_2": 2, "STAGE_3": 3}
_RECOMPUTE = {"NONE": "none", "ATTN_COMPUTE": "selective", "FULL": "full"}
_SHARED_FROM = {"weights": 3, "gradients": 2, "optimizer": 1}  # stage of ZeRO
_ROUNDING = 16  # bytes: of what is not shared
_MEMORY = {
    "weights": ("weight_memory_per_gpu", 2),
    "gradients": ("gradient_memory_per_gpu", 4),
    "optimizer": ("optimizer_state_memory_per_gpu", 12),
}
_EXPERTS = "mixtures of experts: its FLOPs ignore how many experts a token takes (README, 3)"
_UNEVEN = "52 heads on 8 tensor parallel ranks: Nadi refuses what divides no head"
_REST = "layers of a stage are rounded down, in Nadi the first stages have the rest"
_LAST_NORM = "tensor parallel ranks share the last norm, on all stages; in Nadi one stage has it"
_ROWS = "tensor parallel ranks share rows of the table in fractions, in Nadi whole ones"
_NORMS = "tensor parallel ranks share the gradients of norms, in Nadi each has all"
_NO_COPY = "operations of 4 bytes need no float32 copy of weights there: 8 bytes of state, not 12"
_HEAD_AGAIN = "full recomputation repeats the head, in Nadi the layers alone"
_ATTENTION = "attention is recomputed with its linear layers: Nadi has no such mode"


def llm_analysis(checks: Checks) -> None:
    """Compare weights, gradients and optimizer state of a rank, and FLOPs of a micro-batch."""
    tallies = {what: Tally() for what in (*_MEMORY, "FLOPs")}
    for record in golden("llm_analysis", "records.json.gz"):
        if record["kind"] != "train" or "error" in record:
            continue
        stated = record["config"]["model"]
        reason = _EXPERTS if stated.get("moe_num_experts", 1) > 1 else ""
        if stated["n_head"] % record["outputs_head"]["tp_size"]:
            reason = _UNEVEN
        if not reason:
            _compare(record, tallies)
            continue
        for tally in tallies.values():
            tally.add(rule=reason)
    for what, tally in tallies.items():
        checks.add_tally(f"{what} in llm-analysis", tally)


def _model(record: dict[str, Any]) -> LanguageModel:
    """Return the model as llm-analysis counts it: one table, no biases, no positions."""
    stated = record["config"]["model"]
    return LanguageModel(
        layers=stated["num_layers"], hidden=stated["hidden_dim"], heads=stated["n_head"],
        kv_heads=stated.get("num_key_value_heads") or stated["n_head"],
        ffn=stated["ffn_embed_dim"], gated=bool(stated.get("mlp_gated_linear_units")),
        vocab=stated["vocab_size"], norm="rmsnorm", position="none", tied_embeddings=True,
        sequence=record["outputs_head"]["seq_len"],
    )  # fmt: skip


def _compare(record: dict[str, Any], tallies: dict[str, Tally]) -> None:
    """Compare the first stage, whose table is the one that llm-analysis gives every stage."""
    model, out = _model(record), record["outputs_head"]
    mode = out["activation_recomputation"]
    plan = {
        "tp": out["tp_size"], "pp": out["pp_size"], "dp": out["dp_size"],
        "zero": _ZERO[out["ds_zero"]], "micro_batch": out["batch_size_per_gpu"],
    }  # fmt: skip
    found = nadi.models.llm_statistics(
        model, **plan, attention="unfused", recompute=_RECOMPUTE.get(mode, "none")
    )
    row = found.memory.row(0, named=True)
    for what, (key, itemsize) in _MEMORY.items():
        shards = plan["dp"] if plan["zero"] >= _SHARED_FROM[what] else 1
        reasons = _reasons(model, plan, what)
        more = itemsize * sum(reasons.values()) / shards
        error = row[what] - out[key]
        # a rank's share of each layer, table and norm is a whole number of parameters in Nadi
        parts = -(-model.layers // plan["pp"]) + 2 if shards > 1 else 0
        near = max(_ROUNDING, itemsize * parts)
        rule = "; ".join(reasons) if abs(error - more) < near else ""
        if what == "optimizer" and _has_wide_weights(record) and 2 * row[what] == 3 * out[key]:
            rule = _NO_COPY
        tallies[what].add(
            exact=abs(error) < near,
            rule=rule,
            detail=f"{record['id']}: {row[what]} for {out[key]}, {more} expected more",
        )
    stated, made = out["num_flops_total_per_micro_batch"], _products(model, plan, mode)
    # products of the head with the rows that fill up those of the last rank, there and back
    filled = -model.vocab % plan["tp"] * 6 * plan["micro_batch"] * model.sequence * model.hidden
    rules = [_ROWS] if filled else []
    rest = stated - made + filled
    if rest:
        rules.append(_flops_rule(model, plan["micro_batch"], mode, rest))
    tallies["FLOPs"].add(
        exact=made == stated,
        rule="; ".join(rules) if all(rules) else "",
        detail=f"{record['id']} {mode}: {made} for {stated}",
    )  # fmt: skip


def _has_wide_weights(record: dict[str, Any]) -> bool:
    return record["config"].get("arguments", {}).get("other_op_bytes") == 4


def _reasons(model: LanguageModel, plan: dict[str, Any], what: str) -> dict[str, float]:
    """Return by how many parameters a rank of the first stage has more, and why."""
    tp, pp, norm = plan["tp"], plan["pp"], model.norm_parameters
    layers = model.layers // pp
    counts = model.layer_parameters("dense")
    split = (counts.attention + counts.mlp) / tp
    of_norms = counts.norms / tp if what == "gradients" else counts.norms
    found = {
        _ROWS: (-(-model.vocab // tp) - model.vocab / tp) * model.hidden,
        _REST: (-(-model.layers // pp) - layers) * (split + counts.norms),
        _LAST_NORM: (norm if pp == 1 else 0) - norm / tp,
        _NORMS: layers * (counts.norms - of_norms),
    }
    return {reason: count for reason, count in found.items() if count}


def _products(model: LanguageModel, plan: dict[str, Any], mode: str) -> int:
    """Return the FLOPs of the matrix products of a micro-batch on all ranks."""
    nodes = stage_nodes(
        model, tp=plan["tp"], micro_batch=plan["micro_batch"], attention="unfused",
        recompute=_RECOMPUTE.get(mode, "none"),
    )  # fmt: skip
    return plan["tp"] * product_flops(nodes)


def _flops_rule(model: LanguageModel, batch: int, mode: str, missing: int) -> str:
    """Return why its FLOPs are more, if they are so by just what the reason says."""
    tokens, hidden = batch * model.sequence, model.hidden
    if mode == "FULL":
        return _HEAD_AGAIN if missing == 2 * tokens * hidden * model.vocab else ""
    linears = sum(linear.inputs * linear.outputs for linear in model.attention_linears())
    of_attention = 2 * tokens * linears + 4 * tokens * model.sequence * hidden
    return _ATTENTION if missing == model.layers * of_attention else ""
