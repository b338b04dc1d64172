"""Published training steps as models, systems and plans: those that can be stated, and why not.

What a source does not say is an assumption, and the same for all of its rows: ``ASSUMED``.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nadi.models import LanguageModel, load_language_model, shipped_language_models

__all__ = ["ASSUMED", "CALCULON_ROWS", "FILES", "PublishedRun", "calculon_runs", "published_runs"]

FILES = (
    "papers_and_logs", "bigscience_tr11", "nvidia_nemo_megatron_bridge", "mlperf", "torchtitan",
    "llm_foundry_mpt", "tpu_and_misc",
)  # fmt: skip
ASSUMED = {
    "Megatron, A100": "unfused attention, no ZeRO, as table 5's source describes them",
    "BigScience, A100": "Megatron-DeepSpeed: unfused attention, ZeRO 1, no sequence parallelism; "
    "full recomputation, which its TFLOPs count; 250,880 tokens, which its sizes are; 1F1B",
    "NeMo": "Megatron's defaults: flash attention, ZeRO 1, sequence parallelism, no recomputation; "
    "even routing",
    "MPT, FSDP": "flash attention, as the source's settings; ZeRO 3, weights gathered anew for the "
    "backward; full recomputation where it says so; A100 40GB as 80GB, whose rates they have",
    "Primus, MI325X": "flash attention, even routing; an iteration each",
    "torchtitan, FSDP": "flash attention, ZeRO 3; sequences of 4,096 tokens of Llama 2, of 8,192 "
    "of Llama 3, as its settings; torch.compile; H100 of 96 GB as of 80 GB",
}
# measured with full recomputation, and with selective recomputation and sequence parallelism
CALCULON_ROWS: list[tuple[str, dict[str, Any], float, float]] = [
    ("megatron-22b", {"tp": 8, "global_batch": 4, "micro_batch": 4}, 1.42, 1.10),
    ("megatron-175b", {"tp": 8, "pp": 8, "global_batch": 64, "schedule": "interleaved",
                       "chunks": 3}, 18.13, 13.75),
    ("megatron-530b", {"tp": 8, "pp": 35, "global_batch": 280, "schedule": "interleaved",
                       "chunks": 3}, 49.05, 37.83),
    ("megatron-1t", {"tp": 8, "pp": 64, "global_batch": 512}, 94.42, 71.49),
]  # fmt: skip
_WAYS = (
    ("full", {"recompute": "full", "sequence_parallel": False}),
    ("selective, sequence parallel", {"recompute": "selective", "sequence_parallel": True}),
)
_NAMES = {
    "llama3_8b": "llama3-8b", "llama3_70b": "llama3-70b", "llama3.1_405b": "llama3-405b",
    "llama3-70b": "llama3-70b", "qwen3_30b_a3b": "qwen3-30b-a3b", "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3_235b_a22b": "qwen3-235b-a22b", "llama2-7b": "llama2-7b", "llama2-13b": "llama2-13b",
    "llama2-70b": "llama2-70b", "deepseekv3": "deepseek-v3",
}  # fmt: skip
_SYSTEMS = {"DGX-H100": "dgx-h100", "DGX-B200": "dgx-b200", "DGX-GB200": "gb200-nvl72",
            "DGX-B300": "dgx-b300", "DGX-GB300": "gb300-nvl72"}  # fmt: skip
_TYPES = {"BF16": "bfloat16", "FP8": "float8_e4m3fn", "MXFP8": "float8_e4m3fn",
          "FP8-CS": "float8_e4m3fn", "FP8-MX": "float8_e4m3fn"}  # fmt: skip
_JEAN_ZAY = "50 Gb/s"  # four adapters of 100 Gb/s for eight GPUs
_TOKENS_OF_BLOOM = 250_880


# hidden size, heads, layers, as llm-foundry's settings have them
_MPT = {
    "125m": (768, 12, 12), "350m": (1024, 16, 24), "760m": (1536, 12, 24), "1b": (2048, 16, 24),
    "3b": (2560, 20, 32), "7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 56, 48),
    "70b": (8192, 64, 80),
}  # fmt: skip
_TOKENS_OF_MPT = 50_368
_TITAN = {
    ("2", "7B"): "llama2-7b", ("2", "13B"): "llama2-13b", ("2", "70B"): "llama2-70b",
    ("3", "8B"): "llama3-8b", ("3", "70B"): "llama3-70b", ("3", "405B"): "llama3-405b",
}  # fmt: skip
_WARM_UP = 2  # iterations
_AGAIN = {"no": "none", "selective op": "selective", "full": "full"}
_TITAN_SEQUENCE = {"2": 4096, "3": 8192}


class PublishedRun(NamedTuple):
    """A row that can be stated.

    Attributes
    ----------
    source
        A key of ``ASSUMED``.
    name
        Of the row.
    model, system, plan
        As ``nadi estimate`` takes them.
    seconds
        Of a step, measured.
    between_nodes
        The bandwidth between nodes, where it is not the system's.
    """

    source: str
    name: str
    model: LanguageModel
    system: str
    plan: dict[str, Any]
    seconds: float
    between_nodes: str = ""


class _NotStatedError(Exception):
    """What a row does not say, or Nadi does not have."""


def calculon_runs() -> list[PublishedRun]:
    """Give the eight rows that Calculon was validated with."""
    found = []
    for name, fields, *measured in CALCULON_ROWS:
        for (way, more), seconds in zip(_WAYS, measured, strict=True):
            plan = {**fields, **more, "zero": 0, "attention": "unfused", "sequence": 2048,
                    "dtype": "float16"}  # fmt: skip
            model = load_language_model(name)
            found.append(
                PublishedRun("Megatron, A100", f"{name} {way}", model, "dgx-a100", plan, seconds)
            )
    return found


def published_runs(paths: list[Path]) -> tuple[list[PublishedRun], Counter[str], int]:
    """Give the rows of other records that can be stated, why others cannot, and how many there are.

    A record without rows counts as one.
    """
    found: list[PublishedRun] = []
    reasons: Counter[str] = Counter()
    num = 0
    for path in paths:
        for record in json.loads(gzip.decompress(path.read_bytes()))["records"]:
            for row in record.get("rows") or [None]:
                num += 1
                try:
                    found.append(_reader_of(record)(record, row))
                except _NotStatedError as reason:
                    reasons[str(reason)] += 1
                except (KeyError, ValueError, TypeError, IndexError) as error:
                    reasons[f"a figure that is no number or is not there ({error})"] += 1
    return found, reasons, num


def _of_bigscience(record: dict[str, Any], row: list[str]) -> PublishedRun:
    said = dict(zip(record["columns"], row, strict=True))
    sizes = re.findall(r"NHIDDEN=(\d+) / NLAYERS=(\d+)", " ".join(record["context"]))
    if "Sec/it" not in said or "GBS" not in said:
        raise _NotStatedError("no batch of a step")
    if not sizes:
        raise _NotStatedError("no number of layers")
    hidden, layers = map(int, sizes[-1])
    heads = int(said.get("NHEADS", 64))  # "all NHEADS=64"
    ranks = 8 * int(said["Nodes"])
    plan = {"tp": int(said["TP"]), "pp": int(said["PP"]), "dp": int(said["DP"])}
    if plan["tp"] * plan["pp"] * plan["dp"] != ranks:
        raise _NotStatedError("degrees of parallelism that are not the GPUs")
    model = LanguageModel(
        layers=layers, hidden=hidden, heads=heads, vocab=_TOKENS_OF_BLOOM, ffn=4 * hidden,
        attention_bias=True, mlp_bias=True, position="none", tied_embeddings=True, sequence=2048,
        max_positions=2048,
    )  # fmt: skip
    plan |= {"micro_batch": int(said["MBS"]), "global_batch": int(said["GBS"])}
    plan |= {"zero": 1, "sequence_parallel": False, "attention": "unfused", "recompute": "full"}
    name = f"{said['Size']} {hidden}x{layers} {heads} heads"
    return PublishedRun(
        "BigScience, A100", name, model, "dgx-a100", plan, float(said["Sec/it"]), _JEAN_ZAY
    )


def _of_nemo(record: dict[str, Any], row: list[str]) -> PublishedRun:
    said = dict(zip(record["columns"], row, strict=True))
    of_record = re.search(r"model-(.*)-L\d+|system-(dgx-\w+)-", record["id"])
    model = said.get("Model") or (of_record[1] if of_record else "")
    name = _NAMES.get(model.lower().split(" ")[0])
    if name is None:
        raise _NotStatedError(f"no description of the model {model.split(' ')[0]}")
    if "LoRA" in (said.get("Task"), said.get("Mode")) or "-lora-" in record["id"]:
        raise _NotStatedError("frozen weights (LoRA)")
    if "SFT" in (said.get("Task"), said.get("Mode")) or "-sft-" in record["id"]:
        raise _NotStatedError("packed sequences of unknown lengths")
    system = said.get("System") or (of_record[2].upper() if of_record and of_record[2] else "")
    if system not in _SYSTEMS:
        raise _NotStatedError(f"no system file of {system}")
    precision = said.get("Precision", "").split(" ")[0]
    if precision not in _TYPES:
        raise _NotStatedError("4-bit floats" if precision else "no precision")
    sharded = said.get("FSDP", "0") not in ("0", "n/a")
    ranks, cp = int(said["#-GPUs"]), int(said["CP"])
    tp, pp = int(said["TP"]), int(said["PP"])
    chunks = int(said["VP"]) if said["VP"].isdigit() else 1
    ep = int(said["EP"]) if said["EP"].isdigit() else 1
    batch, sequence = int(said["GBS"]), int(said["Sequence Length"])
    plan = {
        "tp": tp, "pp": pp, "cp": cp, "dp": ranks // (tp * pp * cp), "ep": ep,
        "zero": 3 if sharded else 1,
        "micro_batch": int(said["MBS"]), "global_batch": batch, "sequence": sequence,
        "schedule": "interleaved" if chunks > 1 and pp > 1 else "1f1b",
        "chunks": chunks if pp > 1 else 1, "dtype": _TYPES[precision],
    }  # fmt: skip
    rate = float(said["Tokens / sec / GPU"].split(" ")[0])
    return PublishedRun(
        "NeMo", f"{name} {precision} tp {tp} cp {cp} pp {pp} ep {ep}", load_language_model(name),
        _SYSTEMS[system], plan, batch * sequence / (rate * ranks),
    )  # fmt: skip


def _of_mlperf(record: dict[str, Any], row: object) -> PublishedRun:
    stated = record["parallel_config_from_config_sh"]
    if "lora" in record["benchmark"]:
        raise _NotStatedError("frozen weights (LoRA)")
    if not stated:
        raise _NotStatedError("no degrees of parallelism")
    if stated.get("CONTEXT_PARALLEL", "1") != "1":
        raise _NotStatedError("context parallelism")
    raise _NotStatedError("no step time with degrees of parallelism")


def _of_papers(record: dict[str, Any], row: object) -> PublishedRun:
    reasons = {
        "arxiv-2205.05198-table5": "Calculon's rows, which are judged",
        "megatron-lm-readme": "no size of a micro-batch",
        "megascale-table2": "no degrees of parallelism",
        "megascale-fig9": "no degrees of parallelism",
        "fa2-table1": "no batch of a step",
        "oneflow": "no system file of V100",
    }
    known = (text for name, text in reasons.items() if record["id"].startswith(name))
    raise _NotStatedError(next(known, "no step time"))


def _of_mpt(record: dict[str, Any], row: list[str]) -> PublishedRun:
    said = dict(zip(record["columns"], row, strict=True))
    size, gpu = said["Model"], said["GPU"]
    if said["Sharding Strategy"] not in ("FULL_SHARD", "SHARD_GRAD_OP"):
        raise _NotStatedError(f"sharding strategy {said['Sharding Strategy']}")
    if said.get("Activation CPUOffload", "False") == "True":
        raise _NotStatedError("activations offloaded to the host")
    system = {"h100": "dgx-h100", "a100": "dgx-a100"}.get(gpu.split("_")[0])
    if system is None or size not in _MPT:
        raise _NotStatedError(f"no system file of {gpu}, or no shape of {size}")
    dtype = "float8_e4m3fn" if "fp8" in said["Precision"] else "bfloat16"
    hidden, heads, layers = _MPT[size]
    sequence, batch, ranks = int(said["SeqLen (T)"]), int(said["GlobalBatchSize"]), said["# GPUs"]
    model = LanguageModel(
        layers=layers, hidden=hidden, heads=heads, vocab=_TOKENS_OF_MPT, ffn=4 * hidden,
        position="none", tied_embeddings=True, sequence=sequence, max_positions=sequence,
    )  # fmt: skip
    plan = {
        "dp": int(ranks), "zero": 3 if said["Sharding Strategy"] == "FULL_SHARD" else 2,
        "micro_batch": int(said["MicroBatchSize"]), "global_batch": batch, "sequence": sequence,
        "recompute": "full" if said["Activation Checkpointing"] == "True" else "none",
        "dtype": dtype,
    }  # fmt: skip
    name = f"{size} {dtype} {ranks} {gpu} {sequence} tokens"
    seconds = batch * sequence / (float(said["Throughput (T/s/GPU)"]) * int(ranks))
    return PublishedRun("MPT, FSDP", name, model, system, plan, seconds)


def _of_titan(record: dict[str, Any], row: list[str]) -> PublishedRun:
    said = {re.sub(r"checkpoi?n?ting", "checkpointing", name): value.replace(",", "")
            for name, value in zip(record["columns"], row, strict=True)}  # fmt: skip
    texts = [*record.get("context", ()), *record.get("headings", ())]
    told = said | (_of_caption(texts, said) if "TPS/GPU" in said else _of_table(texts, said))
    again, rate = told["Activation checkpointing"].lower(), told.get("WPS") or told["TPS/GPU"]
    if not rate.isdigit():
        raise _NotStatedError("out of memory, as measured")
    if again not in _AGAIN:
        raise _NotStatedError(f"recomputation of what is called {again}")
    generation = told["generation"]
    name = _TITAN.get((generation, told["Model size"]))
    if name is None:
        raise _NotStatedError(f"no description of the model {told['Model size']}")
    gpu, degrees = told["gpu"], [int(told[axis]) for axis in ("GPUs", "TP", "PP", "CP")]
    ranks, tp, pp, cp = degrees
    dp = ranks // (tp * pp * cp)
    batch = int(re.sub(r"\[.*", "", told["Batch size"]))
    sequence = int(told.get("Sequence Length") or _TITAN_SEQUENCE[generation])
    plan = {
        "tp": tp, "pp": pp, "cp": cp, "dp": dp, "zero": 3, "micro_batch": 1 if pp > 1 else batch,
        "global_batch": batch * dp, "sequence": sequence, "recompute": _AGAIN[again],
        "dtype": "float8_e4m3fn" if "float8" in told["how"].lower() else "bfloat16",
        "schedule": "interleaved" if "Interleaved" in told["how"] else "1f1b",
        "chunks": 2 if "Interleaved" in told["how"] else 1,
    }  # fmt: skip
    seconds = batch * dp * sequence / (float(rate) * ranks)
    return PublishedRun(
        "torchtitan, FSDP", f"{name} {again}, {ranks} {gpu} tp {tp} pp {pp} cp {cp}",
        load_language_model(name), "dgx-a100" if gpu == "A100" else "dgx-h100", plan, seconds,
    )  # fmt: skip


def _of_table(texts: list[str], said: dict[str, str]) -> dict[str, str]:
    """Give what the text before a table of sizes says: one axis of data parallel ranks."""
    text = " ".join(texts)
    where = re.search(r"on (\d+) (A100|H100)", text)
    if "WPS" not in said or not where or said["Model size"] == "405B":
        raise _NotStatedError("degrees of parallelism in words only")
    family = re.search(r"llama[ -]?([23])\b", text, re.IGNORECASE)
    return {"GPUs": where[1], "gpu": where[2], "TP": "1", "PP": "1", "CP": "1", "how": "",
            "generation": family[1] if family else "2"}  # fmt: skip


def _of_caption(texts: list[str], said: dict[str, str]) -> dict[str, str]:
    """Give what a table's caption says, the last one before it, and its rows."""
    captions = [text for text in texts if text.startswith("**Table")]
    caption = captions[-1] if captions else ""
    found = re.search(
        r"Llama (\d)(?:\.\d)? (\w+) model\. (\d+) GPUs.*?Local batch size (\d+).*?(\w+) activation",
        caption,
    )  # fmt: skip
    if found is None:
        raise _NotStatedError("degrees of parallelism in words only")
    rows = " ".join(said.values())
    if "AsyncTP" in caption + rows or "compile" not in caption + rows:
        raise _NotStatedError("tensor parallelism tile by tile, or without compilation")
    generation, size, ranks, batch, again = found.groups()
    # what rows say comes before what the caption does
    how = said.get("Techniques", "") if "compile" in rows else f"{rows} {caption}"
    degrees = {}
    for axis in ("TP", "PP", "CP"):
        match = re.search(rf"\b{axis} ?(\d+)", f"{rows} {caption}")
        degrees[axis] = match[1] if match else "1"
    selective = {"selective": "selective op", "full": "full"}
    return {"generation": generation, "Model size": size, "GPUs": ranks, "gpu": "H100",
            "Batch size": batch, "how": how,
            "Activation checkpointing": selective.get(again.lower(), again), **degrees}  # fmt: skip


@cache
def _of_shape(layers: int, hidden: int, ffn: int, *, experts: bool) -> str | None:
    """Find a model that ships with Nadi by its shape, Llama 2 where several have it."""
    found = []
    for name in shipped_language_models():
        model = load_language_model(name)
        width = (model.moe.expert_ffn if model.moe else 0) or model.ffn
        if (model.layers, model.hidden, width, bool(model.moe)) == (
            layers, hidden, ffn, experts,
        ):  # fmt: skip
            found.append(name)
    return next((name for name in found if "llama2" in name), next(iter(found), None))


def _of_primus(record: dict[str, Any], row: list[Any]) -> PublishedRun:
    stated = record["config_from_log"]
    said = dict(zip(record["columns"], row, strict=True))
    if int(said["iteration"]) <= _WARM_UP:
        raise _NotStatedError("a first iteration")
    shape = [int(stated[key]) for key in ("num_layers", "hidden_size", "ffn_hidden_size")]
    name = _of_shape(*shape, experts=stated["num_experts"] != "None")
    if name is None or "MI325X" not in record["hardware"]:
        raise _NotStatedError("no description of a model of this shape, or no system file")
    tp, pp, cp, ep = (int(stated[f"{axis}_parallel_size"]) for axis in (
        "tensor_model", "pipeline_model", "context", "expert_model"))  # fmt: skip
    ranks = int(stated["world_size"])
    sharded = stated["use_torch_fsdp2"] == "True"
    zero = 3 if sharded else int(stated["use_distributed_optimizer"] == "True")
    plan = {
        "tp": tp, "pp": pp, "cp": cp, "dp": ranks // (tp * pp * cp), "ep": ep, "zero": zero,
        "micro_batch": int(stated["micro_batch_size"]), "sequence": int(stated["seq_length"]),
        "global_batch": int(stated["global_batch_size"]),
        "recompute": "full" if stated["recompute_granularity"] == "full" else "none",
        "dtype": "bfloat16" if stated["fp8"] == "None" else "float8_e4m3fnuz",
    }  # fmt: skip
    return PublishedRun(
        "Primus, MI325X", f"{name} {plan['dtype']} {ranks} MI325X", load_language_model(name),
        "mi325x-node", plan, float(said["iter_ms"]) / 1000,
    )  # fmt: skip


def _of_others(record: dict[str, Any], row: object) -> PublishedRun:
    raise _NotStatedError("no degrees of parallelism")


def _reader_of(record: dict[str, Any]) -> Callable[[dict[str, Any], Any], PublishedRun]:
    """Choose how a record is read by what it states, not by the file that it is in."""
    columns, name = set(record.get("columns", ())), record.get("id", "")
    if "parallel_config_from_config_sh" in record:
        return _of_mlperf
    if "Sharding Strategy" in columns:
        return _of_mpt
    if "Tokens / sec / GPU" in columns:
        return _of_nemo
    if {"TP", "PP", "MBS"} <= columns and name.startswith("bigscience"):
        return _of_bigscience
    if name.startswith("torchtitan"):
        return _of_titan
    if "config_from_log" in record and "iter_ms" in columns:
        return _of_primus
    if re.match(r"arxiv-|mega|fa2-|oneflow|primus", name):
        return _of_papers
    return _of_others
