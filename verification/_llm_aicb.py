"""Bytes of collectives against AICB's workloads: texts for simulators and lists of calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import polars as pl
from _llm_goldens import collectives, golden, stage_nodes
from _report import Checks, Tally

from nadi.models import LanguageModel

__all__ = ["aicb"]


class _Call(NamedTuple):
    """Calls of a record: where, which collective as Nadi names it, bytes of each, how many."""

    place: str
    comm_type: str
    bytes: int
    count: int


# places of AICB, by what Nadi's nodes are called; the phase is before the slash
_SAME = {
    "forward/layers": r"layers\.", "backward/layers": r"layers\.",
    "forward/head.loss": r"head\.loss", "forward/embedding": "embedding",
    "backward/embedding": r"embedding\.all",
    "backward/gradients": r"(?:layers\.\d+|embedding|head)\.gradients",
    "optimizer/weights": r"(?:layers\.\d+\.)?weights",
    "forward/weights": r"(?:layers\.\d+|embedding|head)\.weights",
    "backward/weights": r"(?:layers\.\d+|embedding|head)\.weights",
    "optimizer/norms": "whole",
}  # fmt: skip
_ATTENTION = ("attention_layer", "attention_column_layer")  # rows of texts, one for each layer
_SINGLE = {"forward/layers", "backward/layers", "forward/head.loss", "forward/embedding"}
# what AICB has and Nadi has not, by the start of its name
_ONLY_AICB = {
    "init": "set-up of a run: Nadi generates a step",
    "epoch_end": "no call: a mark of AICB's",
    "norm": "a batch is sent to the tensor parallel ranks: Nadi lets each read it",
    "forward_step": "a batch is sent to the tensor parallel ranks: Nadi lets each read it",
    "forward_step.average_losses": "average of the loss over ranks, for its log",
    "layernorm": "a text's first rows: an all-reduce of all weights, in no list of calls",
    "embedding_norm": "sum of the tied table's gradients, with one stage and untied tables",
    "optimizer": "4 bytes for each step of an optimizer: Nadi has those of the norm of gradients",
    "step.check_for_nan": "check of gradients for infinity: Nadi has the norm of gradients",
    "step.has_overflow": "check of gradients for infinity: Nadi has the norm of gradients",
    "step.get_grad_norm": "norm of gradients in 8 bytes: Nadi takes 4",
    "step.allgather_fn": "norms' weights are kept, and gathered after the step",
    "Llama_layer": "texts of DeepSpeed, two models with one file: sizes fit no Llama",
}
_NO_NORMS = "AICB's texts count no norms among the parameters"
_AS_SUM = "AICB all-reduces the embedding and its gradient under sequence parallelism too"
_TWICE = "AICB sums the gradient of the embedding, which each rank has whole"
_BIASES = "AICB sums gradients of norms in 2 bytes, Nadi in 4, also of the last and of biases"
_BUCKETS = "AICB's ZeRO-2 all-reduces the gradients that Nadi reduce-scatters"
_PADDED = "AICB's ZeRO-2 pads the weights that it gathers to equal shares"
_ONCE = "AICB's texts gather the input of a linear layer once, its lists again for the weights"
_WHOLE = "AICB sends whole activations, tensor parallel ranks of Nadi their parts of the sequence"
_HEAD = "Nadi gathers the input of the head and sums its gradient, AICB does neither"


def aicb(checks: Checks) -> None:
    """Compare the bytes of each place of a step where AICB and Nadi have collectives."""
    for record in golden("aicb", "workloads.json.gz"):
        tally = Tally()
        theirs: dict[tuple[str, str], tuple[int, int]] = {}
        for call in _calls(record):
            if call.comm_type in ("isend", "irecv"):
                _message(record, call, tally)
            elif call.place in _SAME:
                size, count = theirs.get((call.place, call.comm_type), (0, 0))
                size += call.bytes * call.count
                theirs[call.place, call.comm_type] = size, count + call.count
            else:
                start = max(
                    (s for s in _ONLY_AICB if call.place.startswith(s)), key=len, default=""
                )
                tally.add(rule=_ONLY_AICB.get(start, ""), detail=str(call))
        if theirs:
            _compare(record, theirs, tally)
        checks.add_tally(f"AICB's bytes in {record['id']}", tally)


def _message(record: dict[str, Any], call: _Call, tally: Tally) -> None:
    """Compare a message to another stage with what Nadi's stages send."""
    stated = record["parameters"]
    whole = 2 * stated["seq"] * stated["hidden"] * stated["mbs"]
    nodes = stage_nodes(
        _model(record), tp=stated["tp"], pp=2, micro_batch=stated["mbs"],
        sequence_parallel=stated["sequence_parallel"],
    )  # fmt: skip
    (size,) = nodes.filter(pl.col("type") == "send")["bytes"].unique().to_list()
    rule = _WHOLE if call.bytes == whole == stated["tp"] * size else ""
    tally.add(exact=call.bytes == size, rule=rule, detail=f"{call}: {size}")


def _calls(record: dict[str, Any]) -> Iterable[_Call]:
    return _of_text(record) if record["kind"] == "simai_text" else _of_list(record)


def _of_text(record: dict[str, Any]) -> Iterable[_Call]:
    names = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather",
             "REDUCESCATTER": "reduce_scatter", "BROADCAST": "broadcast"}  # fmt: skip
    for row in record["rows"]:
        name = row[0]
        for phase, kind, size in (
            ("forward", row[3], row[4]), ("backward", row[6], row[7]), ("step", row[9], row[10]),
        ):  # fmt: skip
            if kind == "NONE":
                continue
            place = name
            if name.startswith(("attention", "mlp")):
                place = f"{phase}/layers"
            elif name == "embedding_layer":
                place = f"{phase}/embedding"
            elif name.startswith("cross_entropy"):
                place = "forward/head.loss"
            elif name == "grad_norm":
                place = "optimizer/weights" if phase == "forward" else "backward/gradients"
            yield _Call(place, names[kind], size, 1)


def _of_list(record: dict[str, Any]) -> Iterable[_Call]:
    for rows in record["aggregate"]:
        for phase, operation, _, _, size, count in rows:
            where, _, what = (phase or operation).partition(".")
            place = phase or operation
            if what in ("MegatronColumnLinear", "MegatronRowLinear"):
                place = f"{where}/layers"
            elif what == "MegatronEmbedding":
                place = f"{where}/embedding"
            elif what == "_VocabParallelCrossEntropy":
                place = "forward/head.loss"
            elif what == "_allreduce_layernorm_grads":
                place = "optimizer/norms"
            elif what in ("allreduce_bucket", "reduce_scatter_fn") or (place, operation) == (
                "step", "reduce_scatter"
            ):  # fmt: skip
                place = "backward/gradients"
            elif what == "all_gather_dp_groups" or (place, operation) == ("step", "all_gather"):
                place = "optimizer/weights"
            elif what == "allgather_fn" and where != "step":
                place = f"{where}/weights"
            yield _Call(place, operation, size, count)


def _model(record: dict[str, Any]) -> LanguageModel:
    """Return what a record's parameters say; the texts and lists of Megatron have GPT's layers."""
    stated, is_text = record["parameters"], record["kind"] == "simai_text"
    layers = stated["layers"]
    if is_text:  # the layers that it lists, which may be those of a stage
        layers = sum(row[0] in _ATTENTION for row in record["rows"]) or layers
    shape = {"layers": layers, "hidden": stated["hidden"], "ffn": stated["ffn"],
             "sequence": 2048, "heads": stated.get("heads", 32),
             "gated": stated.get("gated_mlp", False)}  # fmt: skip
    if stated["framework"] == "DeepSpeed":
        return LanguageModel(**shape | {"gated": True}, vocab=stated["vocab"], norm="rmsnorm")
    learned = {"position": "learned", "max_positions": stated["seq"]}
    if is_text:  # the table and the head apart, no biases
        return LanguageModel(**shape, **learned, vocab=32000, norm="rmsnorm")
    rows = 128 * stated["tp"]  # Megatron pads the vocabulary
    return LanguageModel(
        **shape, **learned, vocab=-(-32000 // rows) * rows, norm="layernorm", attention_bias=True,
        mlp_bias=True, tied_embeddings=True,
    )  # fmt: skip


def _compare(
    record: dict[str, Any], theirs: dict[tuple[str, str], tuple[int, int]], tally: Tally
) -> None:
    """Compare bytes; and how many calls where these are of single tensors, not of buckets."""
    stated, model = record["parameters"], _model(record)
    tp, zero = stated["tp"], stated.get("zero", 1)
    dp = stated.get("world_size", 128) // tp
    is_deepspeed = stated["framework"] == "DeepSpeed"
    nodes = stage_nodes(
        model, tp=tp, dp=dp, zero=zero, micro_batch=stated["mbs"],
        sequence_parallel=stated.get("sequence_parallel", False),
        gradient_dtype="bfloat16" if is_deepspeed else "float32",
    )  # fmt: skip
    for (place, comm_type), (size, count) in theirs.items():
        found, made = _found(nodes, place, comm_type, tp, dp)
        counts = made == count or place not in _SINGLE
        exact = found == size and counts
        rule = (
            "" if exact else _rule(record, model, nodes, (place, comm_type), (size, count), found)
        )
        detail = f"{place} {comm_type}: {found} in {made} for {size} in {count}"
        tally.add(exact=exact, rule=rule, detail=detail)
    of_head = nodes.filter(
        (pl.col("role") == "tp") & pl.col("name").str.contains(r"^head\.(?:logits|norm)\.")
    )
    for name in of_head["name"]:
        tally.add(rule=_HEAD, detail=name)


def _found(nodes: pl.DataFrame, place: str, comm_type: str, tp: int, dp: int) -> tuple[int, int]:
    """Return Nadi's bytes of a place, as whole tensors, and in how many calls."""
    phase, _, what = place.partition("/")
    role, ranks = ("dp", dp) if what in ("gradients", "weights") else ("tp", tp)
    return collectives(nodes, _SAME[place], comm_type, role, phase, ranks)


def _rule(
    record: dict[str, Any], model: LanguageModel, nodes: pl.DataFrame, key: tuple[str, str],
    theirs: tuple[int, int], found: int,
) -> str:  # fmt: skip
    """Return why AICB's bytes differ, if they do so by just what the reason says."""
    (place, _), stated, (size, count) = key, record["parameters"], theirs
    tp, dp = stated["tp"], stated.get("world_size", 128) // stated["tp"]
    norms = model.parameters().norms
    whole = stated.get("seq", 0) * model.hidden * 2
    if place == "optimizer/norms" and found == 2 * size + 4 * (
        model.norm_parameters + 2 * model.layers * model.hidden
    ):
        return _BIASES
    if place.endswith("/embedding") and size == whole:
        if not stated["sequence_parallel"]:
            return _TWICE if place == "backward/embedding" and not found else ""
        other = "reduce_scatter" if place.startswith("forward") else "all_gather"
        return _AS_SUM if _found(nodes, place, other, tp, dp)[0] == size else ""
    if place == "backward/layers" and key[1] == "all_gather" and found == 2 * size:
        return _ONCE
    if record["kind"] == "simai_text":
        itemsize = 4 if place == "backward/gradients" else 2
        return _NO_NORMS if found - size == itemsize * norms else ""
    if stated.get("zero") == 2 and place == "backward/gradients":
        return _BUCKETS if _found(nodes, place, "reduce_scatter", tp, dp)[0] == size else ""
    whole = 2 * model.total_parameters
    # in Nadi each layer, table and norm is shared among the ranks, and rounded up
    if stated.get("zero") == 2 and 0 <= found - whole < 2 * dp * (model.layers + 2):
        return _PADDED if size == _padded(model.total_parameters, count, dp) else ""
    return ""


def _padded(elements: int, calls: int, ranks: int) -> int:
    """Give the bytes of gathers of equal parts, of which the last has the rest."""
    part = elements // calls
    parts = [part] * (calls - 1) + [elements - (calls - 1) * part]
    return 2 * sum(-(-one // ranks) * ranks for one in parts)
