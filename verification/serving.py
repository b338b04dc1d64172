"""``nadi serve`` against runs of vLLM, published points, and a slow reference.

    python verification/serving.py [--all] [PARTS]

Parts: reference, profile, priced, light, silicon, tiers.

``reference``: 250 drawn cases, with ``--all`` 1,000, equal to ``tests/reference/serving.py`` to the
nanosecond: all are drawn by one law.
``profile``: a run on an RTX 4090 with its measured times of layers. ``priced``: runs of which only
model and system are known. ``light``: their first requests, before queues form. ``silicon``:
published points of closed loops. ``tiers``: measured copies and hits of keys and values.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _report import SHARED, Checks, Tally, run_parts, takes_all

import nadi
from nadi.estimates.inference_steps import inference_bytes, launched_operations
from nadi.models import LanguageModel
from nadi.serving import (
    CacheTier,
    EngineRules,
    Requests,
    ServedRequests,
    Serving,
    StepTimes,
    measures,
    serve_on_engines,
)
from nadi.systems import System

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

FIELD = SHARED / "field" / "serving"
PROFILE = "profile_profiler_perf_RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1"
LEVELS = (50, 90, 95, 99)
DRAWN = 1000 if takes_all() else 250
WARM = slice(10, 40)  # steps 1 and 2 of a run take 0.4 s more; later requests wait for others


class Measured:
    """A run of vLLM, request by request, in ns."""

    def __init__(self, folder: str) -> None:
        lines = (FIELD / folder / "requests.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        self.queued, self.first, self.last = (
            np.array([row[f"{name}_ts"] for row in rows]) * 1e9
            for name in ("queued", "first_token", "last_token")
        )
        self.output = np.array([row["output_toks"] for row in rows])

    @property
    def rate(self) -> float:
        """Generated tokens a second."""
        return float(self.output.sum()) / (self.last.max() - self.queued.min()) * 1e9


def metrics(run: Measured | ServedRequests) -> list[np.ndarray]:
    """Give TTFT, TPOT and latency of requests, since the engine saw them."""
    gaps = np.maximum(run.output - 1, 1)
    return [run.first - run.queued, (run.last - run.first) / gaps, run.last - run.queued]


def errors(run: ServedRequests, measured: Measured) -> np.ndarray:
    """Give the errors of mean and percentiles of each metric in percent: shape (3, 5)."""
    summed = [
        [[one.mean(), *np.percentile(one, LEVELS)] for one in metrics(which)]
        for which in (run, measured)
    ]
    return (np.array(summed[0]) / np.array(summed[1]) - 1) * 100


def compare(what: str, found: Serving, measured: Measured, mean: float, rate: float,
            checks: Checks) -> None:  # fmt: skip
    """Check the mean error of 15 values, and the rate."""
    run = found.runs[0]
    off = errors(run, measured)
    print(f"  {what}: TTFT, TPOT, latency by mean, P50, P90, P95, P99, in percent")
    for row in off:
        print("   ", " ".join(f"{value:+7.2f}" for value in row))
    seconds = (run.last.max() - run.queued.min()) / 1e9
    relative = float(run.output.sum()) / seconds / measured.rate - 1
    checks.add(f"{what}: mean error of 15 values under {mean} %", np.abs(off).mean() < mean,
               f"{np.abs(off).mean():.2f} %, largest {np.abs(off).max():.2f} %")  # fmt: skip
    checks.add(f"{what}: generated tokens a second within {100 * rate} %", abs(relative) < rate,
               f"{100 * relative:+.2f} %")  # fmt: skip


def reference(checks: Checks) -> None:
    """Compare kernels with the slow reference."""
    from tests.reference.serving import Server
    from tests.serving.drawn import drawn_case

    tally, put_out, loaded = Tally(), 0, 0
    for seed in range(DRAWN):
        requests, rules, times = drawn_case(seed)
        found = serve_on_engines(requests, rules, times)
        slow = Server(requests, rules, times)
        slow.serve()
        is_equal = all(
            getattr(found, name).tolist() == [getattr(one, name) for one in slow.requests]
            for name in ("queued", "first", "last", "hits", "put_out")
        )
        tally.add(exact=is_equal, detail=f"seed {seed}")
        put_out += found.instances["put_out"].sum() > 0
        loaded += found.instances["loaded_tokens"].sum() > 0
    checks.add_tally("drawn cases equal to the slow reference", tally)
    checks.add("many of them put requests out, and load blocks", min(put_out, loaded) > 0.3 * DRAWN,
               f"{put_out} and {loaded} of {DRAWN:,}")  # fmt: skip


def profile(checks: Checks) -> None:
    """Serve the run of the RTX 4090 with measured times of layers, and its number of blocks."""
    found = nadi.serve(
        "llama3-8b", "rtx-4090-workstation", measured=str(FIELD / PROFILE), blocks=2587,
        requests=str(FIELD / "sharegpt-llama-3.1-8b-300-sps10.jsonl.gz"),
    )  # fmt: skip
    compare("RTX 4090, profile", found, Measured("RTX4090_Llama-3.1-8B"), 0.4, 0.005, checks)


def on_pcie(bandwidth: float, latency: float) -> System:
    """Give the server of RTX PRO 6000 with the links that the run's cluster file states.

    Its GPUs have no copies from peer to peer: 16 GB/s and 20 us, and not 63 GB/s.
    """
    system = nadi.load_system("rtx-pro-6000-server")
    first, *others = system.network.dimensions
    first = msgspec.structs.replace(first, bandwidth=bandwidth, latency=latency)
    network = msgspec.structs.replace(system.network, dimensions=(first, *others))
    return msgspec.structs.replace(system, network=network)


@cache
def priced_runs() -> tuple[tuple[str, Serving, Measured], ...]:
    """Serve both runs of which model and system are known."""
    runs = "RTX4090_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B"
    config = json.loads((FIELD / runs[1] / "config.json").read_text())
    found = (
        nadi.serve("llama3-8b", "rtx-4090-workstation",
                   requests=str(FIELD / "sharegpt-llama-3.1-8b-300-sps10.jsonl.gz")),
        nadi.serve("qwen3-32b", on_pcie(config["link_bw"], config["link_latency"]), tp=2,
                   sequences=128, requests=str(FIELD / runs[1] / "requests.jsonl")),
    )  # fmt: skip
    return tuple((name, one, Measured(name)) for name, one in zip(runs, found, strict=True))


def priced(checks: Checks) -> None:
    """Serve runs with priced steps and the room that follows from the device's memory."""
    for name, found, measured in priced_runs():
        compare(f"{name}, priced", found, measured, 15.0, 0.15, checks)


def light(checks: Checks) -> None:
    """Compare the first requests of the same runs, which wait for no memory."""
    for name, found, measured in priced_runs():
        for title, one, other in zip(("TTFT", "TPOT"), metrics(found.runs[0]), metrics(measured),
                                     strict=False):  # fmt: skip
            off = 100 * (one[WARM].mean() / other[WARM].mean() - 1)
            checks.add(f"{name}, requests 11 to 40: {title} under 10 %", abs(off) < 10,
                       f"{off:+.1f} %")  # fmt: skip


MODELS = {
    "meta-llama/Llama-3.1-70B": "llama3-70b", "meta-llama/Llama-3.1-8B-Instruct": "llama3-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama3-8b", "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b", "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
}  # fmt: skip
SYSTEMS = {"h200_sxm": "hgx-h200", "gb200": "gb200-nvl72"}
NEAR = {"ttft": 0.20, "tpot": 0.12}
# max_batch_size of those that generate, by prompt, answer and requests: dsr1-fp8-gb200-dynamo-trt
GB200_BATCHES = {
    ("1024", "1024", 3): 1, ("1024", "1024", 27): 8, ("1024", "1024", 256): 8,
    ("1024", "1024", 6144): 768, ("1024", "8192", 4): 1, ("1024", "8192", 36): 8,
    ("1024", "8192", 2048): 64, ("1024", "8192", 8192): 256, ("8192", "1024", 6): 1,
    ("8192", "1024", 18): 4, ("8192", "1024", 63): 16,
}  # fmt: skip


def series(row: dict[str, str]) -> tuple[str, ...]:
    """Name the series of a point: what was written in one way."""
    file = row["silicon_data_source"].partition(";")[0]
    return (file, *(row[name] for name in ("model_path", "system", "backend", "precision")))


def counts_devices(rows: list[dict[str, str]]) -> set[tuple[str, ...]]:
    """Give the series whose degree of tensor parallelism counts all devices of several instances.

    In them are degrees that do not divide the heads of the model, such as 36 for 128 heads.
    """
    found = set()
    for row in rows:
        model = model_of(row)
        if row["mode"] == "agg" and model and model.heads % max(1, int(row["tp_size"] or 1)):
            found.add(series(row))
    return found


def degrees(row: dict[str, str]) -> tuple[int, int, int]:
    """Give tensor parallel degree, groups of attention, and expert parallel degree.

    Where experts are stated to be spread twice, 8 times 8, 64 ranks are 8: 13 of 36 such points
    are the measurements that other points give with 8, to all digits.
    """
    tp, dp, moe_tp, ep = (
        max(1, int(row[name] or 1))
        for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    )
    if min(moe_tp, ep) > 1 and tp * dp == moe_tp * ep:
        return max(1, tp // moe_tp), max(1, dp // moe_tp), ep
    return tp, dp, ep


def left_out(row: dict[str, str], several: set[tuple[str, ...]]) -> str:
    """Name the rule by which a point is left out, empty if it is none.

    - ``several``: Series of which nobody knows how many devices an instance has.
    """
    if "silicon_concurrency=" not in row["silicon_data_source"]:
        return "states no concurrency"
    if "gap" in row["silicon_data_source"]:  # aic-auto-gap-analysis, gap_analysis.csv
        return "of other benchmarks, whose lengths and repeated prompts nobody states"
    if row["mode"] != "agg":
        if not row["prefill_num_workers"]:
            return "prefill and decode apart: nobody states how many instances there are"
        if row["precision"] == "fp4":
            return "prefill and decode apart, with products of 4 bits, which Nadi does not price"
    if model_of(row) is None:
        return "a model whose layers Nadi does not have: sparse or linear attention"
    if series(row) in several:
        return "of a series whose tensor parallel degrees do not divide the heads: all devices"
    return ""


def engine_of(row: dict[str, str], launch_us: dict[str, float]) -> dict[str, float]:
    """Give the settings of an engine that the benchmark's script states.

    InferenceX (SemiAnalysis), benchmarks/single_node/*_h200*.sh and their older names: vLLM has
    max-num-batched-tokens, SGLang chunked-prefill-size. TensorRT-LLM has max_num_tokens, which
    for DeepSeek is one prompt and the tokens of each other request, for each group of ranks. There
    prompts wait: with attention_dp_config until each group has one, for 60 steps; those of Llama
    with short prompts and answers on fewer than 8 GPUs, with batch_wait_timeout_iters, for 20.
    """
    _, dp, _ = degrees(row)
    launches = {"launch_us": launch_us.get(row["backend"], 0.0)}
    if row["backend"] == "vllm":
        # gpt-oss has CUDA graphs of up to 2,048 tokens; of Kimi no other model's points are known
        return {"budget": 8192, **(launches if "MiniMax" in row["model_path"] else {})}
    if row["backend"] == "sglang":
        return {"budget": 32768, **launches}
    if "gpt-oss" in row["model_path"]:
        return {"budget": 20_000, **launches}
    if "llama" in row["model_path"]:
        is_short = row["isl"] == row["osl"] == "1024" and degrees(row)[0] < 8
        return {"budget": 16384, **({"wait_steps": 20, "wait_share": 0.9} if is_short else {})}
    guesses = guesses_of(row, dp)
    tokens = (1 + guesses.get("drafts", 0)) * places_of(row) // (dp if guesses else 1)
    budget = (int(tokens) + int(row["isl"]) + 64 + 63) // 64 * 64
    return {"budget": budget, **launches, **guesses, **({"wait_steps": 60} if dp > 1 else {})}


def guesses_of(row: dict[str, str], dp: int) -> dict[str, float]:
    """Give what is drafted for DeepSeek in the series of January 2026, and how much is accepted.

    Its points are exactly those of dsr1-fp8-h200-trt-mtp in .github/configs/nvidia-master.yaml of
    the benchmark, and those before are exactly those of dsr1-fp8-h200-trt: 3 tokens (MTP), or 1
    where attention is data parallel. Nobody states what was accepted. With 1 token it is 82 % of
    R1 (vLLM, pull request 12755). With 3, TensorRT-LLM's blog on MTP states 2.16 times as many
    tokens a second, which 59.5 % for each give.
    """
    if "measured=2026-01" not in row["silicon_data_source"]:
        return {}
    return {"drafts": 1, "acceptance": 0.82} if dp > 1 else {"drafts": 3, "acceptance": 0.595}


@cache
def operations_where_launched() -> dict[tuple[str, str], int]:
    """Give the operations of layers with experts whose points are left out.

    Without CUDA graphs of prompts the host launches them. The layers of GLM-5 and Qwen3.5 are
    counted as those of DeepSeek, 22 operations each.
    """
    deepseek = nadi.models.load_language_model("deepseek-v3")
    kimi = described_models()["moonshotai/Kimi-K2.5"]
    return {
        ("sglang", "zhipuai/GLM-5"): 78 * 22, ("sglang", "Qwen/Qwen3.5-397B-A17B"): 60 * 22,
        ("trtllm", "deepseek-ai/DeepSeek-R1"): launched_operations(deepseek),
        ("vllm", "moonshotai/Kimi-K2.5"): launched_operations(kimi),
    }  # fmt: skip


def launch_times(rows: list[dict[str, str]], several: set[tuple[str, ...]]) -> dict[str, float]:
    """Give the us in which engines launch an operation: of points that are left out, and short.

    With few requests and 1,024 tokens a prompt takes as long as the host needs to launch it, and
    waits for about one step.
    """
    found: dict[str, list[float]] = {}
    for row in rows:
        operations = operations_where_launched().get((row["backend"], row["model_path"]))
        rule = left_out(row, several)
        if not operations or row["isl"] != "1024" or row["mode"] != "agg" or not rule:
            continue
        if 0 < places_of(row) <= 16:
            waited = float(row["silicon_ttft_ms"]) - float(row["silicon_tpot_ms"])
            found.setdefault(row["backend"], []).append(1e3 * waited / operations)
    for backend, values in sorted(found.items()):
        print(f"  {backend}: an operation of a prompt is launched in {np.median(values):.0f} us "
              f"({len(values)} points that are left out: {min(values):.0f} to "
              f"{max(values):.0f})")  # fmt: skip
    return {backend: float(np.median(values)) for backend, values in found.items()}


def places_of(row: dict[str, str]) -> int:
    """Give the requests that are always under way; 0 if nobody states them."""
    return int(row["silicon_data_source"].partition("silicon_concurrency=")[2].split(";")[0] or 0)


def silicon(checks: Checks) -> None:
    """Serve closed loops of published points: ten requests for each place, all at once at first.

    Assumptions: lengths are uniform from 0.8 to 1 of what is stated, as the benchmark that most
    points come from draws them, times to first token are means over all requests, and 8-bit
    models have 8-bit keys and values.
    """
    with gzip.open(FIELD / "silicon.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    rules: Counter[str] = Counter()
    several = counts_devices(rows)
    launch_us = launch_times(rows, several)
    off: dict[tuple[str, str], list[tuple[float, float]]] = {}
    distinct: dict[tuple[str, ...], tuple[float, float]] = {}
    kinds: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        rule, model = left_out(row, several), model_of(row)
        if not rule:
            assert model
            try:
                errors_of = point(row, model, launch_us)
            except nadi.NadiError as error:
                rule = f"refused: {str(error).partition(':')[0]}"
        if rule:
            rules[rule] += 1
            continue
        assert model
        is_apart = row["mode"] != "agg"
        how = f"{row['backend']}{', apart' * is_apart}"
        off.setdefault((model.name, how), []).append(errors_of)
        kind = "prefill and decode apart" if is_apart else "one instance for both"
        kinds.setdefault(kind, []).append(errors_of)
        if not is_apart and degrees(row)[1] > 1:
            kinds.setdefault("of these, groups with requests of their own", []).append(errors_of)
        measured = ("isl", "osl", "silicon_ttft_ms", "silicon_tpot_ms")
        if not is_apart:
            distinct.setdefault(tuple(row[name] for name in measured), errors_of)
    for rule, count in rules.most_common():
        print(f"  {count:5} left out: {rule}")
    tell_groups(off)
    every = np.abs([pair for pairs in off.values() for pair in pairs])
    for name, column in zip(("ttft", "tpot"), every.T, strict=True):
        checks.add(f"{len(every)} points: median error of {name} under {100 * NEAR[name]:.0f} %",
                   float(np.median(column)) < NEAR[name],
                   f"{100 * np.median(column):.1f} %")  # fmt: skip
    for what, pairs in (
        *((f"points, {kind}", of_kind) for kind, of_kind in sorted(kinds.items(), reverse=True)),
        (
            "measurements of one instance for both, as some points are one, with equal digits",
            list(distinct.values()),
        ),
        ("of one instance for both, models that ship", of_models(off, shipped=True)),
        ("of one instance for both, models that do not ship", of_models(off, shipped=False)),
    ):
        middle = 100 * np.median(np.abs(pairs), axis=0)
        print(f"  {len(pairs)} {what}: {middle[0]:.1f} % of TTFT, {middle[1]:.1f} % of TPOT")


def of_models(off: dict[tuple[str, str], list[tuple[float, float]]], *, shipped: bool
              ) -> list[tuple[float, float]]:  # fmt: skip
    """Give the errors of points of one instance, of models that ship with Nadi or of others."""
    return [
        pair for (model, how), pairs in off.items() for pair in pairs
        if (model in MODELS.values()) == shipped and not how.endswith(", apart")
    ]  # fmt: skip


def tell_groups(off: dict[tuple[str, str], list[tuple[float, float]]]) -> None:
    """Print the errors of points by model and engine."""
    for (model, backend), pairs in sorted(off.items()):
        ttft, tpot = np.array(pairs).T
        print(f"  {len(pairs):5} {model} {backend}: median of TTFT {100 * np.median(ttft):+.0f} %, "
              f"absolute {100 * np.median(np.abs(ttft)):.0f} %; of TPOT "
              f"{100 * np.median(tpot):+.0f} %, {100 * np.median(np.abs(tpot)):.0f} %")  # fmt: skip


@cache
def described_models() -> dict[str, LanguageModel]:
    """Give models that do not ship, by their config.json: full attention in each layer."""
    load, change = nadi.models.load_language_model, msgspec.structs.replace
    qwen, deepseek = load("qwen3-30b-a3b"), load("deepseek-v3")
    assert qwen.moe
    assert deepseek.moe
    return {
        "openai/gpt-oss-120b": change(
            qwen, name="gpt-oss-120b", layers=36, hidden=2880, heads=64, kv_heads=8, head_dim=64,
            vocab=201088, qk_norm=False, moe=change(qwen.moe, top_k=4, expert_ffn=2880),
        ),
        "MiniMaxAI/MiniMax-M2.5": change(
            qwen, name="minimax-m2.5", layers=62, hidden=3072, heads=48, kv_heads=8, head_dim=128,
            vocab=200064, moe=change(qwen.moe, experts=256, expert_ffn=1536),
        ),
        "moonshotai/Kimi-K2.5": change(
            deepseek, name="kimi-k2.5", heads=64, vocab=163840, mtp_layers=0,
            moe=change(deepseek.moe, experts=384, first_dense_layers=1),
        ),
    }  # fmt: skip


def model_of(row: dict[str, str]) -> LanguageModel | None:
    """Give the model of a point, None if Nadi has no such layers."""
    if row["model_path"] in MODELS:
        return nadi.models.load_language_model(MODELS[row["model_path"]])
    return described_models().get(row["model_path"])


def apart(row: dict[str, str], launch_us: dict[str, float]) -> dict[str, float | str]:
    """Give the instances of a point with prefill and decode apart, and their settings.

    The points with 8 bits are in .github/configs/nvidia-master.yaml of the benchmark with the same
    instances, degrees and requests, and there without drafts. The recipes of srt-slurm that it
    names have max_num_tokens for each group of ranks (TensorRT-LLM), and chunked-prefill-size for
    all of them (SGLang); their names have the requests of a step, which matter on GB200 alone.
    Experts of SGLang that are split (moe_tp) are spread here: ranks read as much of them.
    """
    prompt, many = int(row["isl"]), int(row["decode_batch_size"])
    found: dict[str, float | str] = {
        "replicas": int(row["decode_num_workers"]),
        "prefill_replicas": int(row["prefill_num_workers"]),
        "launch_us": launch_us.get(row["backend"], 0.0),
    }
    found["routing"] = "turns"  # Dynamo's router
    for kind, prefix in (("decode", ""), ("prefill", "prefill_")):
        tp, dp = int(row[f"{kind}_tp_size"]), int(row[f"{kind}_attention_dp_size"])
        found |= {f"{prefix}tp": tp, f"{prefix}attention_dp": dp, f"{prefix}ep": dp}
    if row["backend"] == "sglang":
        budget = 131_072 // int(row["prefill_attention_dp_size"])
    else:
        budget = 8192 if row["system"] == "h200_sxm" and prompt == 1024 else 16_640
    sequences = max(2 * many, budget // prompt)
    if (row["backend"], row["system"]) == ("trtllm", "gb200"):
        sequences = GB200_BATCHES[row["isl"], row["osl"], places_of(row)]
    return found | {"sequences": sequences, "budget": max(budget, many)}


def together(row: dict[str, str], launch_us: dict[str, float]) -> dict[str, float | str]:
    """Give the instance of a point that reads prompts and generates, and its settings."""
    tp, dp, ep = degrees(row)
    return {"tp": tp, "attention_dp": dp, "ep": ep if dp > 1 else 1, "sequences": places_of(row),
            "routing": "least", **engine_of(row, launch_us)}  # fmt: skip


@cache
def served_ms(model: LanguageModel, system: str, **settings: Any) -> tuple[float, float]:
    """Serve; give the mean time to first token and the median per token.

    A third of the points ask what others do: several measured the same.
    """
    run = nadi.serve(model, system, **settings, reserved=4e9, prefix_caching=False).runs[0]
    values = measures(run)
    return float(np.mean(values["ttft"])) / 1e6, float(np.nanmedian(values["tpot"])) / 1e6


def point(
    row: dict[str, str], model: LanguageModel, launch_us: dict[str, float]
) -> tuple[float, float]:
    """Serve a point; give the errors of time to first token and per token, as shares."""
    places = places_of(row)
    settings = together if row["mode"] == "agg" else apart
    is_small = row["precision"] == "fp8"
    is_narrow = row["precision"] in ("fp4", "int4")
    ttft, tpot = served_ms(
        model, SYSTEMS[row["system"]], concurrency=places,
        input=round(0.9 * int(row["isl"])), output=round(0.9 * int(row["osl"])), spread=0.064,
        number=10 * places, **settings(row, launch_us),
        dtype="float8_e4m3fn" if is_small else "bfloat16",
        kv_dtype="float8_e4m3fn" if is_small else "", weight_bits=4 if is_narrow else 0,
    )  # fmt: skip
    return ttft / float(row["silicon_ttft_ms"]) - 1, tpot / float(row["silicon_tpot_ms"]) - 1


# agentic-kvc at 837df6b: H20, Qwen3-Coder-30B-A3B, vLLM 0.18.1 eager; ms by tokens of a prompt
H20 = {"gpu": {1024: 41.8, 65536: 111.0}, "cpu": {1024: 57.0, 65536: 272.0}}
H20_COPIES = {1024: 53.7, 65536: 54.4}  # GB/s
H20_LOAD_NS = 13_300_000  # what a load takes beside its copy: the CPU hit of 1,024 tokens, less the
# GPU hit and the copy; so that row is put in, and that of 65,536 is a prediction
H20_PAPERS = """  printed, and not checked (they state ratios, or too little of the configuration):
    vLLM offload, H100: ~50 GB/s one way, 83.4 both; a CPU hit 2 to 22 times sooner
    XCENA MX1, 174k tokens: cold 45 s, first hit 3.5 s from CXL and 3.6 s from DRAM (<= 5 GB/s)
    Beluga: TTFT -89.6 %, 7.35 times the throughput; TraCT: 9.8 times TTFT; ITME +35.7 %"""


def tiers(checks: Checks) -> None:
    """Load prompts from host memory that a second prompt drove out of the device's."""
    model = nadi.models.load_language_model("qwen3-30b-a3b")
    # what PCIe 5 x16 gives to host memory in a system that ships; nothing of it was measured here
    system = nadi.load_system("dgx-h100-cxl")
    path = system.path_of(next(one for one in system.tiers if one.name == "dram"))
    assert path
    pcie = path.read_bandwidth
    for tokens in H20_COPIES:
        token_bytes = inference_bytes(model, nadi.models.ParallelPlan())[1]
        block_ns = token_bytes * 16 / pcie
        blocks = tokens // 16
        tier = CacheTier("host", 10 * blocks, 1, block_ns, 0.0, H20_LOAD_NS)
        rules = EngineRules(budget=1 << 17, blocks=blocks + 1, tiers=(tier,))
        flat = StepTimes(np.array([1.0, 2.0]), np.ones(2), np.array([1.0, 2.0]), np.ones(2),
                         (np.array([0.0, 1.0]),) * 4, np.zeros((2, 2, 2, 2)), False)  # fmt: skip
        one = np.ones(3, dtype=np.int64)
        requests = Requests.of(one * 0, one * tokens, one)._replace(
            stream=np.array([1, 2, 1]), follows=np.array([-1, 0, 1])
        )
        run = serve_on_engines(requests, rules, [flat, flat])
        loaded = (run.first[2] - run.arrival[2]) / 1e6
        copied = loaded - H20_LOAD_NS / 1e6
        rate = token_bytes * tokens / copied / 1e6
        near = abs(rate / H20_COPIES[tokens] - 1)
        checks.add(f"H20, {tokens:,} tokens: copies within 15 %", near < 0.15,
                   f"{rate:.1f} GB/s, measured {H20_COPIES[tokens]}")  # fmt: skip
        hit = H20["gpu"][tokens] + loaded
        off = hit / H20["cpu"][tokens] - 1
        checks.add(f"H20, {tokens:,} tokens: a hit in host memory within 15 %", abs(off) < 0.15,
                   f"{hit:.0f} ms, {100 * off:+.1f} %")  # fmt: skip
    print(H20_PAPERS)


if __name__ == "__main__":
    run_parts({
        "reference": reference, "profile": profile, "priced": priced, "light": light,
        "silicon": silicon, "tiers": tiers,
    })  # fmt: skip
