"""Collectives, messages and matrix products against traces of the Symbolic Tensor Graph."""

from __future__ import annotations

from typing import Any

import polars as pl
from _llm_goldens import collectives, golden, product_flops, stage_nodes
from _report import Checks, Tally

from nadi.models import LanguageModel

__all__ = ["symbolic_tensor_graph"]

_Sums = dict[tuple[str, str], tuple[int, int]]
_ACTIVATION, _GRADIENT = 2, 4  # bytes of an element
_LAYER, _TABLE = r"layers\.", "(?:embedding|head)\\.gradients"
_NO_NORMS = "STG reduces and gathers no norms' weights"
_WHOLE_TABLES = "STG's tables are whole on tensor parallel ranks, Nadi shards them by vocabulary"
_TABLES_ASIDE = "STG does not shard tables with the layers' weights, Nadi does"
_EMBEDDING = "STG has a matrix product for the input embedding, Nadi a look-up"
_GATE = "its products of gate and value are matrix products, too"
_QUERY_HEADS = "STG sums the gradients of keys and values for each query head"
_AT_ONCE = "Nadi gathers keys and values at once, with the same bytes"
_APART = "STG sums gradients over data and context parallel ranks one after the other"
_LOGITS = "STG all-reduces the logits, Nadi three sums per token"
_LAST = "STG gathers the gradient of the last residual, Nadi has it whole"
_ONLY_NADI = "Nadi only: embedding, head and loss under tensor parallelism"
_CRASHED = "STG crashes, no trace"


def symbolic_tensor_graph(checks: Checks) -> None:
    """Compare the first and the last rank of each trace; elements are times their size."""
    for record in golden("stg", "records.json.gz"):
        tally = Tally()
        if "error" in record:
            tally.add(rule=_CRASHED)
        else:
            stages = {0: record["rank_0"]}
            if record["arguments"]["pp"] > 1:
                last = f"rank_{record['ranks'] - 1}"
                stages[record["arguments"]["pp"] - 1] = record[last]
            for stage, rank in stages.items():
                _compare(record["arguments"], stage, rank, tally)
        checks.add_tally(f"STG's trace {record['id']}", tally)


def _model(arguments: dict[str, Any]) -> LanguageModel:
    # without mixed precision its flag for Llama makes a GPT
    is_llama = arguments["model_type"] == "llama" and arguments["mixed_precision"] == "true"
    return LanguageModel(
        layers=arguments["num_stacks"], hidden=arguments["dmodel"], heads=arguments["head"],
        kv_heads=arguments["kvhead"] if is_llama else arguments["head"], ffn=arguments["dff"],
        vocab=arguments["dvocal"], sequence=arguments["seq"], gated=is_llama, norm="rmsnorm",
    )  # fmt: skip


def _nodes(arguments: dict[str, Any], stage: int) -> pl.DataFrame:
    dp, tp = arguments["dp"], arguments["tp"]
    return stage_nodes(
        _model(arguments), stage, tp=tp, dp=dp, cp=arguments["sp"], pp=arguments["pp"],
        zero=3 if arguments["weight_sharded"] == "true" else 0, schedule="gpipe",
        micro_batch=arguments["micro_batch"] // dp, global_batch=arguments["batch"],
        sequence_parallel=tp > 1 and arguments["tpsp"] == "true",
    )  # fmt: skip


def _compare(arguments: dict[str, Any], stage: int, rank: dict[str, Any], tally: Tally) -> None:
    nodes = _nodes(arguments, stage)
    _products(arguments, stage, rank, nodes, tally)
    for kind in ("send", "recv"):
        size = sum(row[2] for row in rank["send_recv"] if row[1] == f"COMM_{kind.upper()}")
        chosen = nodes.filter(pl.col("type") == kind)["bytes"]
        if size or chosen.len():
            tally.add(exact=size * _ACTIVATION == chosen.sum(), detail=f"{kind} {size}")
    for (what, comm_type), (size, count) in _sums(arguments, rank).items():
        norms = _model(arguments).norm_parameters
        if only := _only_there(arguments, what):
            rule, expected = only
            tally.add(rule=rule if size == expected else "", detail=f"{what}: {size}")
            continue
        found, made = _found(nodes, what, comm_type)
        exact = (found, made) == (size, count)
        tally.add(
            exact=exact,
            rule="" if exact else _rule(arguments, what, (size, count), (found, made), norms),
            detail=f"{what} {comm_type}: {found} in {made} for {size} in {count}",
        )  # fmt: skip
    beside = nodes.filter((pl.col("role") == "tp") & pl.col("name").str.contains("^(?:emb|head)"))
    if arguments["tpsp"] == "false":  # both sum the embedding
        beside = beside.filter(pl.col("name") != "embedding.all_reduce")
    for _ in range(beside.height):
        tally.add(rule=_ONLY_NADI)


def _products(
    arguments: dict[str, Any], stage: int, rank: dict[str, Any], nodes: pl.DataFrame, tally: Tally
) -> None:
    """Compare matrix products, which STG counts in multiply-adds and without attention's core."""
    found, size = product_flops(nodes), 2 * rank["num_ops_by_op_type"]["M"]
    sharing = arguments["dp"] * arguments["tp"] * arguments["sp"]
    tokens = arguments["batch"] * arguments["seq"] // sharing
    of_embedding = 3 * 2 * tokens * arguments["dvocal"] * arguments["dmodel"]
    model = _model(arguments)
    of_gate = 3 * 2 * tokens * model.ffn * model.layers if model.gated else 0
    is_first = stage == 0 and size - found == of_embedding + of_gate
    rule = _EMBEDDING + ("; " + _GATE if of_gate else "")
    tally.add(exact=found == size, rule=rule if is_first else "",
              detail=f"products of stage {stage}: {found} for {size}")  # fmt: skip


def _sums(arguments: dict[str, Any], rank: dict[str, Any]) -> _Sums:
    """Sum STG's collectives by what they are for: bytes and count."""
    found: _Sums = {}
    for name, comm_type, size, _, ranks in rank["collectives"]:
        what, itemsize = _purpose(arguments, name, ranks)
        before = found.get((what, comm_type.lower()), (0, 0))
        found[what, comm_type.lower()] = before[0] + size * itemsize, before[1] + 1
    return found


def _purpose(arguments: dict[str, Any], name: str, ranks: list[int]) -> tuple[str, int]:
    """Return what a collective is for, and the size of its elements."""
    if "_emb.w" in name:
        is_tp = arguments["tp"] > 1 and ranks[1] - ranks[0] == arguments["dp"]
        return f"tables/{'tp' if is_tp else 'dp'}", _GRADIENT
    purposes = {
        "_sharded_grad": ("gradients", _GRADIENT),
        "_assembled_weight_backward": ("weights/backward", _ACTIVATION),
        "_assembled_weight": ("weights/forward", _ACTIVATION),
        "attn_kernel": ("keys and values", _ACTIVATION),
        "loss.y": ("logits", _ACTIVATION),
        "ffn_res.dy": ("last", _ACTIVATION),
        "input_norm.x": ("embedding", _ACTIVATION),
    }
    return next((to for part, to in purposes.items() if part in name), ("layers", _ACTIVATION))


def _found(nodes: pl.DataFrame, what: str, comm_type: str) -> tuple[int, int]:
    where = {
        "layers": [(_LAYER, "tp", "forward"), (_LAYER, "tp", "backward")],
        "keys and values": [(_LAYER, "cp", "forward"), (_LAYER, "cp", "backward")],
        "embedding": [("embedding", "tp", "forward")],
        "gradients": [(r"layers\.\d+\.gradients", "dp", "backward")],
        "tables/dp": [(_TABLE, "dp", "backward")],
        "weights/forward": [(r"layers\.\d+\.weights", "dp", "forward")],
        "weights/backward": [(r"layers\.\d+\.weights", "dp", "backward")],
    }[what]
    parts = [collectives(nodes, pattern, comm_type, role, phase) for pattern, role, phase in where]
    return sum(size for size, _ in parts), sum(count for _, count in parts)


def _only_there(arguments: dict[str, Any], what: str) -> tuple[str, int] | None:
    """Return why Nadi has no such collective, and the bytes that it then has in STG."""
    tokens = arguments["batch"] * arguments["seq"] // arguments["dp"]
    tables = 2 * arguments["dvocal"] * arguments["dmodel"] * _GRADIENT
    residual = tokens * arguments["dmodel"] * _ACTIVATION
    found = {
        "logits": (_LOGITS, tokens * arguments["dvocal"] * _ACTIVATION),
        "last": (_LAST, residual // arguments["tp"]),
        "tables/tp": (_WHOLE_TABLES, tables),
    }
    if arguments["weight_sharded"] == "true":
        found["tables/dp"] = _TABLES_ASIDE, tables
    return found.get(what)


def _rule(
    arguments: dict[str, Any], what: str, stated: tuple[int, int], made: tuple[int, int], norms: int
) -> str:
    """Return why a sum differs, if it does so by just what the reason says."""
    (size, count), (found, calls) = stated, made
    if what == "keys and values":  # one collective has both, STG one for each
        is_same, times = count == 2 * calls, arguments["head"] // arguments["kvhead"]
        if is_same and size == found:
            return _AT_ONCE
        return _QUERY_HEADS if is_same and size == times * found else ""
    apart = arguments["dp"] > 1 and arguments["sp"] > 1 and count == 2 * calls
    if apart and what in ("gradients", "tables/dp"):
        each = (size // 2, count // 2)
        if each == made:
            return _APART
        rule = _rule(arguments | {"sp": 1}, what, each, made, norms)
        return f"{_APART}; {rule}" if rule else ""
    if what == "gradients" or what.startswith("weights"):
        itemsize = _GRADIENT if what == "gradients" else _ACTIVATION
        shards = arguments["dp"] * arguments["sp"] if what != "gradients" else 1
        return _NO_NORMS if found - size == 2 * norms * itemsize * calls // shards else ""
    if what == "tables/dp":  # the head's collective has the last norm
        whole = size // arguments["tp"]
        if found - whole == norms * _GRADIENT:
            return _NO_NORMS if arguments["tp"] == 1 else _WHOLE_TABLES
    return ""
