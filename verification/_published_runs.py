"""Published training steps as models, systems and plans: estimates of those that can be stated.

What a source does not say is an assumption, and the same for all of its rows: ``ASSUMED``.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import msgspec

from nadi.errors import NadiError, UsageError
from nadi.estimates import (
    DEFAULT,
    columns_of,
    describe_step,
    estimate,
    model_of_language_model,
    read_machine,
    search,
    search_space,
)
from nadi.estimates.price_bounds import step_bounds
from nadi.models import LanguageModel, load_language_model, shipped_language_models
from nadi.systems import load_system, shipped_text

__all__ = [
    "ASSUMED", "CALCULON_ROWS", "FILES", "PublishedRun", "calculon_runs", "published_runs",
    "show_estimates",
]  # fmt: skip

FILES = (
    "papers_and_logs", "bigscience_tr11", "nvidia_nemo_megatron_bridge", "mlperf", "torchtitan",
    "llm_foundry_mpt", "tpu_and_misc",
)  # fmt: skip
ASSUMED = {
    "Megatron, A100": "unfused attention, no ZeRO, as table 5's source describes them",
    "BigScience, A100": "Megatron-DeepSpeed: unfused attention, ZeRO 1, no sequence parallelism; "
    "full recomputation, which its TFLOPs count; 250,880 tokens, which its sizes are; 1F1B",
    "NeMo": "Megatron's defaults: flash attention, ZeRO 1, sequence parallelism, no recomputation; "
    "even routing; packed sequences as one, LoRA of rank 16 on attention's projections",
    "Megatron, H100": "communication of tensor parallel ranks beside products, as its flags say; "
    "ZeRO 1; the micro-batch and chunks that nadi search finds fastest",
    "MLPerf": "8-bit floats, ZeRO 1, no recomputation; where a record has no degrees of "
    "parallelism, those that nadi search finds fastest",
    "MLPerf, LoRA": "records state none of: 8-bit floats, rank 16 on attention's projections, "
    "sequences of 8,192 tokens, no recomputation; accumulated micro-batches of one sequence tell "
    "the replicas, and where tp is not stated, it is 1 where a GPU holds the weights, else 4",
    "MegaScale, A100": "the shape of GPT-3 175B, tp 8 and pp 8, as its table 1 says; ZeRO 1, and "
    "the micro-batch, chunks and recomputation that nadi search finds fastest",
    "MPT, FSDP": "flash attention, as the source's settings; ZeRO 3, weights gathered anew for the "
    "backward; full recomputation where it says so",
    "Primus, MI325X": "flash attention, even routing; an iteration each",
    "torchtitan, FSDP": "flash attention, ZeRO 3, with stages ZeRO 2, as it keeps weights "
    "then; sequences of 4,096 tokens of Llama 2, of 8,192 "
    "of Llama 3, as its settings; torch.compile; H100 of 500 W at 912 TFLOP/s; "
    "AsyncTP as communication beside products",
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
_MLPERF = {"llama31_8b": "llama3-8b", "llama31_405b": "llama3-405b",
           "llama2_70b_lora": "llama2-70b"}  # fmt: skip
_ADAPTERS, _TOKENS_OF_LORA = 16, 8192
_WEIGHTS = 70e9  # bytes of Llama 2 70B in 8-bit floats
_MLPERF_SYSTEMS = {
    "H100": "dgx-h100", "H200-SXM": "hgx-h200", "GB200": "gb200-nvl72", "GB300": "gb300-nvl72",
    "B200": "dgx-b200", "B300": "dgx-b300", "MI325X": "mi325x-node",
}  # fmt: skip
_NUMBERS = ("ranks", "global_batch", "sequence")  # of a search
_JEAN_ZAY = (("200 Gb/s", "50 Gb/s"),)  # four adapters of 100 Gb/s for eight GPUs
# data sheet of the A100 40GB SXM: other memory, and less of it
_A100_40GB = (("2039 GB/s", "1555 GB/s"), ("80 GB", "40 GB"))
# H100 with HBM2e and 500 W: its peak lies between those of the SXM and the NVL, 989 and 835 TFLOP/s
# (arXiv 2410.06511), and the middle is taken
_H100_96GB = (("3.35 TB/s", "2.4 TB/s"), ("80 GB", "96 GB"), ("989 TFLOP/s", "912 TFLOP/s"))
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
_VANILLA = "Vanilla TP tokens/sec"
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
    differs
        What the system's file states otherwise, and what the row's machine has: texts in quotes.
    """

    source: str
    name: str
    model: LanguageModel
    system: str
    plan: dict[str, Any]
    seconds: float
    differs: tuple[tuple[str, str], ...] = ()
    searched: bool = False  # whether fields of the plan that it lacks are those a search finds


class _NotStatedError(Exception):
    """What a row does not say, or Nadi does not have."""


# what comes of figures that are null, in words, or left out
_UNREADABLE = (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError)


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
                    found.append(_checked(_reader_of(record)(record, row)))
                except (_NotStatedError, NadiError) as reason:
                    reasons[str(reason)] += 1
                except _UNREADABLE as error:
                    reasons[f"a figure that is no number or is not there ({error})"] += 1
    return found, reasons, num


def _checked(run: PublishedRun) -> PublishedRun:
    """Give a row again; its time, and all degrees and sizes, have to be above 0."""
    model, plan = run.model, run.plan
    numbers = (model.layers, model.hidden, model.heads, model.vocab, *(
        value for name, value in plan.items() if isinstance(value, int) and name not in (
            "zero", "lora", "micro_batch", "sequence_parallel")))  # fmt: skip
    if min(numbers) < 1 or not 0 < run.seconds < math.inf:
        raise _NotStatedError("a figure that is not above 0")
    return run


def _system_of(run: PublishedRun, ranks: int, folder: str) -> str:
    """Give a system's name, or the file of a copy with what is special about a row."""
    text = shipped_text(run.system)
    changed = text
    for stated, own in run.differs:
        changed = changed.replace(f'"{stated}"', f'"{own}"')
    if run.system.endswith("nvl72") and ranks > 72 and ranks % 72:
        changed = changed.replace("size = 72", "size = 64")  # 16 of the rack's 18 trays have work
    if changed == text:
        return run.system
    path = Path(folder) / f"{run.system}.toml"
    path.write_text(changed)
    return str(path)


class _Estimated(NamedTuple):
    """The estimate of a row."""

    seconds: float
    low: float  # if all kernels take the least, and the most, of the intervals of their prices
    high: float
    lacks: str


def _estimated(run: PublishedRun, folder: str) -> _Estimated:
    plan = run.plan
    if not run.searched:
        ranks = math.prod(plan.get(axis, 1) for axis in ("tp", "cp", "dp", "pp"))
        system = _system_of(run, ranks, folder)
        step = describe_step(run.model, system, plan)
        found = estimate(step.model, step.machine, step.execution)
        bounds = step_bounds(step.model, step.machine, columns_of([step.execution]), DEFAULT)
        return _Estimated(found.seconds, *(float(end[0]) for end in bounds), found.lacks)
    given = {name: [value] for name, value in plan.items() if name not in _NUMBERS}
    stays = {f"{kind}_offload": [False] for kind in ("weight", "activations", "optimizer")}
    ranks, batch, sequence = (plan[name] for name in _NUMBERS)
    space = search_space(
        model_of_language_model(run.model, sequence),
        read_machine(_system_of(run, ranks, folder), ranks), ranks, batch, given | stays,
    )  # fmt: skip
    best = search(space, top=1).best
    if not best:
        raise UsageError(run.name, "no plan of a search fits the memory", "none is assumed")
    executions = columns_of([best[0].execution])
    bounds = step_bounds(space.model, space.machine, executions, DEFAULT)
    return _Estimated(best[0].seconds, *(float(end[0]) for end in bounds), "")


def show_estimates(
    source: str, runs: list[PublishedRun], folder: str
) -> tuple[list[float], Counter[str]]:
    """Print a line per row and the errors of all; give these, and why rows are refused."""
    print(f"\n{source}: {ASSUMED[source]}")
    print(f"{'row':44} {'measured':>9} {'estimated':>10} {'error':>8}")
    errors: list[float] = []
    refused: Counter[str] = Counter()
    inside = 0
    known: dict[bytes, _Estimated] = {}
    for run in runs:
        key = msgspec.json.encode([run.model, run.system, run.plan, run.differs, run.searched])
        try:
            known[key] = known.get(key) or _estimated(run, folder)
        except NadiError as error:
            refused[str(error)] += 1
            print(f"{run.name:44} {run.seconds:8.2f}s {'refused':>10}  {error}")
            continue
        found = known[key]
        errors.append(found.seconds / run.seconds - 1)
        inside += found.low <= run.seconds <= found.high
        told = "  (more memory than it has)" if found.lacks else ""
        print(f"{run.name:44} {run.seconds:8.2f}s {found.seconds:9.2f}s {errors[-1]:+8.1%}{told}")
    if errors:
        sizes = [abs(error) for error in errors]
        print(f"{source}: {len(errors)} rows, mean absolute error {mean(sizes):.1%}, "
              f"median {median(sizes):.1%}, signed median {median(errors):+.1%}; "
              f"{inside} inside the interval of kernels' prices")  # fmt: skip
    return errors, refused


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
    kind = said.get("Task") or said.get("Mode") or ""
    has_adapters = kind == "LoRA" or "-lora-" in record["id"]
    system = said.get("System") or (of_record[2].upper() if of_record and of_record[2] else "")
    text = " ".join(record.get("context", ()))  # which says of fine-tuning what columns do not
    told = re.search(r"DGX-?(\w+)", text), re.search(r"\b(BF16|FP8)\b", text)
    system = system or (f"DGX-{told[0][1]}" if told[0] else "")
    if system not in _SYSTEMS:
        raise _NotStatedError(f"no system file of {system}")
    precision = str(said.get("Precision") or (told[1][1] if told[1] else "")).split(" ")[0]
    if precision not in _TYPES:
        raise _NotStatedError("4-bit floats" if precision else "no precision")
    sharded = said.get("FSDP", "0") not in ("0", "n/a")
    ranks, tp, pp = (int(said[name]) for name in ("#-GPUs", "TP", "PP"))
    cp, chunks, ep = (
        int(said[name]) if said.get(name, "").isdigit() else 1 for name in ("CP", "VP", "EP")
    )
    length = said.get("Packed Sequence Length") or said["Sequence Length"]
    batch, sequence = int(said["GBS"]), int(length)
    plan = {
        "tp": tp, "pp": pp, "cp": cp, "dp": ranks // (tp * pp * cp), "ep": ep,
        "zero": 3 if sharded else 1,
        "micro_batch": int(said["MBS"]), "global_batch": batch, "sequence": sequence,
        "schedule": "interleaved" if chunks > 1 and pp > 1 else "1f1b",
        "chunks": chunks if pp > 1 else 1, "dtype": _TYPES[precision],
        "lora": _ADAPTERS if has_adapters else 0,
    }  # fmt: skip
    rate = float(said["Tokens / sec / GPU"].split(" ")[0])
    return PublishedRun(
        "NeMo", f"{name} {precision} tp {tp} cp {cp} pp {pp} ep {ep}", load_language_model(name),
        _SYSTEMS[system], plan, batch * sequence / (rate * ranks),
    )  # fmt: skip


def _of_mlperf(record: dict[str, Any], row: object) -> PublishedRun:
    name, log = _MLPERF.get(record["benchmark"]), record["config_from_log"]
    steps = [run["train_step_time_median_s"] for run in record["runs"]
             if run.get("train_step_time_median_s")]  # fmt: skip
    rates = [run["tracked_throughput_median_samples_per_s"] for run in record["runs"]
             if run.get("tracked_throughput_median_samples_per_s")]  # fmt: skip
    if "lora" in record["benchmark"] and not steps:  # else rates are with evaluations
        steps = [log["global_batch_size"] / rate for rate in rates]
    if name is None or not steps:
        raise _NotStatedError("no step time")
    gpu = record["system"]["accelerator_model_name"]
    system = next((own for part, own in _MLPERF_SYSTEMS.items() if part in gpu), None)
    if system is None:
        raise _NotStatedError(f"no system file of {gpu}")
    said, ranks = record["parallel_config_from_config_sh"], record["n_accelerators"]
    if "lora" in record["benchmark"]:
        return _with_adapters(record, name, system, median(steps))
    plan: dict[str, Any] = {"zero": 1, "recompute": "none", "dtype": "float8_e4m3fn",
                            "global_batch": log["global_batch_size"],
                            "sequence": log["max_sequence_length"]}  # fmt: skip
    told = f"{name} {ranks} {gpu.removeprefix('NVIDIA ')[:24]}"
    if "TENSOR_MODEL_PARALLEL" not in said:
        plan |= {"ranks": ranks, "dtype": "float8"}
        return PublishedRun("MLPerf", told, load_language_model(name), system, plan, median(steps),
                            searched=True)  # fmt: skip
    tp, pp, cp, chunks, micro = (int(said.get(key, 1)) for key in (
        "TENSOR_MODEL_PARALLEL", "PIPELINE_MODEL_PARALLEL", "CONTEXT_PARALLEL",
        "INTERLEAVED_PIPELINE", "MICRO_BATCH_SIZE"))  # fmt: skip
    plan |= {"tp": tp, "pp": pp, "cp": cp, "dp": ranks // (tp * pp * cp), "micro_batch": micro,
             "schedule": "interleaved" if chunks > 1 else "1f1b", "chunks": chunks,
             "overlap": "ring" if said.get("TP_COMM_OVERLAP") == "True" else "none"}  # fmt: skip
    return PublishedRun("MLPerf", told, load_language_model(name), system, plan, median(steps))


def _with_adapters(record: dict[str, Any], name: str, system: str, seconds: float) -> PublishedRun:
    """Give a row of MLPerf's LoRA: accumulated micro-batches of one sequence tell the replicas."""
    said, log = record["parallel_config_from_config_sh"], record["config_from_log"]
    ranks, batch = record["n_accelerators"], log["global_batch_size"]
    replicas = batch // log["gradient_accumulation_steps"]
    plan: dict[str, Any] = {"dtype": "float8_e4m3fn", "sequence": _TOKENS_OF_LORA, "zero": 1,
                            "global_batch": batch, "micro_batch": 1, "lora": _ADAPTERS}  # fmt: skip
    if ranks % replicas:
        raise _NotStatedError("replicas that do not divide the GPUs")
    shared = ranks // replicas
    told = f"LoRA {name} {ranks} {record['system']['accelerator_model_name'][:30]}"
    model = load_language_model(name)
    room = load_system(system).memory_capacity
    usual = 1 if room > _WEIGHTS * 1.5 else 4
    tp = int(said.get("TP", usual))
    if shared % tp:
        raise _NotStatedError("degrees of parallelism that are not the GPUs")
    plan |= {"tp": tp, "cp": shared // tp, "dp": replicas}
    return PublishedRun("MLPerf, LoRA", told, model, system, plan, seconds)


def _of_megatron(record: dict[str, Any], row: list[Any]) -> PublishedRun:
    said, fixed = dict(zip(record["columns"], row, strict=True)), record["fixed"]
    hidden, layers, sequence = int(said["hidden"]), int(said["layers"]), int(fixed["seq"])
    vocab, batch, ranks = int(fixed["vocab"]), int(said["batch"]), int(said["GPUs"])
    model = LanguageModel(
        layers=layers, hidden=hidden, heads=int(said["heads"]), vocab=vocab, ffn=4 * hidden,
        tied_embeddings=True, sequence=sequence, max_positions=sequence,
    )  # fmt: skip
    plan = {"tp": int(said["TP"]), "pp": int(said["PP"]), "cp": 1, "zero": 1, "overlap": "ring",
            "recompute": "none", "dtype": fixed["dtype"].replace("bf16", "bfloat16"),
            "ranks": ranks, "global_batch": batch, "sequence": sequence}  # fmt: skip
    # FLOPs of a step of which its rates are: arXiv 2104.04473, equation 3, without recomputation
    flops = 72 * batch * sequence * layers * hidden**2 * (
        1 + sequence / (6 * hidden) + vocab / (12 * hidden * layers))  # fmt: skip
    seconds = flops / (float(said["TFLOPs_per_GPU"]) * 1e12 * ranks)
    return PublishedRun("Megatron, H100", f"{said['model']} {ranks} H100 tp {said['TP']} "
                        f"pp {said['PP']}", model, "dgx-h100", plan, seconds,
                        searched=True)  # fmt: skip


def _of_megascale(record: dict[str, Any], row: list[Any]) -> PublishedRun:
    said = dict(zip(record["columns"], row, strict=True))
    if "iter_s" not in said:
        raise _NotStatedError("no step time")
    if said["method"] != "Megatron-LM":
        raise _NotStatedError("operators of MegaScale's own")
    plan = {"tp": 8, "pp": 8, "cp": 1, "zero": 1, "overlap": "none", "dtype": "bfloat16",
            "ranks": int(said["GPUs"]), "global_batch": int(said["batch"]),
            "sequence": 2048}  # fmt: skip
    return PublishedRun("MegaScale, A100", f"175b {said['GPUs']} A100, batch {said['batch']}",
                        load_language_model("gpt3-175b"), "dgx-a100", plan, float(said["iter_s"]),
                        searched=True)  # fmt: skip


def _of_papers(record: dict[str, Any], row: object) -> PublishedRun:
    reasons = {
        "arxiv-2205.05198-table5": "Calculon's rows, which are judged",
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
    differs = _A100_40GB if gpu == "a100_40gb" else ()
    return PublishedRun("MPT, FSDP", name, model, system, plan, seconds, differs)


def _of_titan(record: dict[str, Any], row: list[str]) -> PublishedRun:
    said = {re.sub(r"checkpoi?n?ting", "checkpointing", name): value.replace(",", "")
            for name, value in zip(record["columns"], row, strict=True)}  # fmt: skip
    texts = [*record.get("context", ()), *record.get("headings", ())]
    if _VANILLA in said:
        told = said | _of_heading(texts, said)
    else:
        told = said | (_of_caption(texts, said) if "TPS/GPU" in said else _of_table(texts, said))
    again, rate = told["Activation checkpointing"].lower(), told.get("WPS") or told["TPS/GPU"]
    if not rate.replace(".", "", 1).isdigit():
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
        "tp": tp, "pp": pp, "cp": cp, "dp": dp, "zero": 3 if pp == 1 else 2,
        "micro_batch": 1 if pp > 1 else batch,
        "global_batch": batch * dp, "sequence": sequence, "recompute": _AGAIN[again],
        "dtype": "float8_e4m3fn" if "float8" in told["how"].lower() else "bfloat16",
        "schedule": "interleaved" if "Interleaved" in told["how"] else "1f1b",
        "chunks": 2 if "Interleaved" in told["how"] else 1,
        "overlap": "ring" if "AsyncTP" in told["how"] else "none",
    }  # fmt: skip
    seconds = batch * dp * sequence / (float(rate) * ranks)
    hardware = record.get("hardware", "")
    system = "hgx-h200" if hardware.startswith("H200") else f"dgx-{gpu.lower()}"
    return PublishedRun(
        "torchtitan, FSDP", f"{name} {again}, {ranks} {gpu} tp {tp} pp {pp} cp {cp}",
        load_language_model(name), system, plan, seconds, _H100_96GB if "HBM2e" in hardware else (),
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


def _of_heading(texts: list[str], said: dict[str, str]) -> dict[str, str]:
    """Give what the heading of a table says whose rows differ in the type alone."""
    found = re.search(
        r"Llama(\d) (\w+) on (\d+) (\w+?)s with .*TP=(\d+).*, (.*) S?AC,\s+local batch size (\d+)",
        texts[-1],
    )  # fmt: skip
    if found is None:
        raise _NotStatedError("degrees of parallelism in words only")
    generation, size, ranks, gpu, tp, again, batch = found.groups()
    return {"generation": generation, "Model size": size.upper(), "GPUs": ranks, "gpu": gpu,
            "TP": tp, "PP": "1", "CP": "1", "how": said["Quantization"], "Batch size": batch,
            "Activation checkpointing": "full" if again == "full" else "selective op",
            "TPS/GPU": said[_VANILLA]}  # fmt: skip


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
    if "compile" not in caption + rows:
        raise _NotStatedError("without compilation")
    generation, size, ranks, batch, again = found.groups()
    # what rows say comes before what the caption does
    how = said.get("Techniques", "") if "compile" in rows else f"{rows} {caption}"
    how += " AsyncTP" if "AsyncTP" in caption + rows else ""
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
    columns, name = set(record.get("columns") or ()), str(record.get("id") or "")
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
    if name.startswith("megascale"):
        return _of_megascale
    if name.startswith("megatron-lm-readme"):
        return _of_megatron
    if re.match(r"arxiv-|fa2-|oneflow|primus", name):
        return _of_papers
    return _of_others
