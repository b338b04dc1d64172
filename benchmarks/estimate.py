"""How fast executions are estimated and searched, and with how much memory.

Usage: python benchmarks/estimate.py

One core evaluates parts of a space; then whole searches run as commands: 530 billion parameters on
5,128 ranks, and 175 billion on 512 with a second memory tier, 13.2 million configurations.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from _measure import best_of, measure, nadi, peak_memory_mb

from nadi.estimates import (
    CALCULON,
    DEFAULT,
    MachineDescription,
    ModelDescription,
    evaluate,
    read_machine,
    read_model,
    search_space,
)

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "estimate"
LARGE = {"hidden": 20480, "feedforward": 81920, "seq_size": 2048, "attn_heads": 128,
         "attn_size": 160, "num_blocks": 105}  # fmt: skip
AT_ONCE = 1 << 18
COMPAT = ("--compat", "calculon")
NAMED = ("gpt3-175b", "llama3-70b", "mixtral-8x22b")
WIDE = ("fused_activation=true,false", "attention_type=multihead,multiquery",
        "datatype=float8,bfloat16")  # fmt: skip


def read(name: str) -> Any:
    """Read an example."""
    return json.loads((EXAMPLES / f"{name}.json").read_text())


def wide_machine() -> Any:
    """Give the machine of the examples with a second datatype."""
    told = read("machine")
    for engines in (told["matrix"], told["vector"]):
        fast = engines["bfloat16"]
        engines["float8"] = fast | {"tflops": 2 * fast["tflops"]}
    return told


def one_core(name: str, model: ModelDescription, machine: MachineDescription) -> None:
    """Evaluate a space in this process."""
    rules = CALCULON if name == "calculon" else DEFAULT
    given = {"datatype": ["bfloat16"]}
    space = search_space(model, machine, 512, 4096, given, rules=rules)
    counts = {"all": 0, "refused": 0}

    def work() -> None:
        counts["all"] = counts["refused"] = 0
        for first in range(0, space.size, AT_ONCE):
            for part in space.executions(first, min(first + AT_ONCE, space.size)):
                found = evaluate(model, machine, part, rules)
                counts["all"] += part.num_executions
                counts["refused"] += int((found.seconds == float("inf")).sum())

    first, seconds = best_of(work, 1), best_of(work, 3)
    done = counts["all"] - counts["refused"]
    print(
        f"one core, {name}: {counts['all']:,} configurations in {first:.2f} s the first time, "
        f"{counts['all'] / first:,.0f}/s, then {seconds:.2f} s, {counts['all'] / seconds:,.0f}/s; "
        f"{done:,} of them not refused before their step is worked out, "
        f"{done / seconds:,.0f}/s; {peak_memory_mb():.0f} MB at peak"
    )


def command(what: str, arguments: list[str], configurations: int) -> None:
    """Measure a search as a user has it."""
    found = measure(nadi("search", *arguments, "--json"), runs=3)
    rate = configurations / found.best
    print(f"{what}: {configurations:,} configurations in {found}, {rate:,.0f}/s")


def main() -> None:
    machine, wide = read("machine"), wide_machine()
    model, large = read("model"), LARGE
    own = msgspec.convert(model, ModelDescription), msgspec.convert(machine, MachineDescription)
    one_core("calculon", *own)
    one_core("default", *own)
    for name in NAMED:
        machine_of_name = read_machine("dgx-h100", 512)
        one_core(f"default, {name} on dgx-h100", read_model(name), machine_of_name)
        space = search_space(read_model(name), machine_of_name, 512, 4096)
        command(
            f"{name} on 512 ranks of dgx-h100",
            [name, "dgx-h100", "--ranks", "512", "--global-batch", "4096"], space.size,
        )  # fmt: skip
    found = measure(nadi("estimate", *(str(EXAMPLES / f"{name}.json") for name in
                                       ("model", "machine", "execution"))), runs=5)  # fmt: skip
    print(f"nadi estimate: {found}")
    files = [str(EXAMPLES / f"{name}.json") for name in ("model", "machine", "execution")]
    for axes in (("mem2.GBps=1:1000:1", "mem2.GiB=1:1000:1"),
                 ("mem1.GBps=1:1000:1", "networks.1.bandwidth=1:1000:1")):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            options = [word for one in axes for word in ("--sweep", one)]
            options += ["--compat", "calculon", "-o", f"{folder}/points.parquet", "--overwrite"]
            found = measure(nadi("estimate", *files, *options), runs=3)
        print(f"a million points of {axes[0].split('=')[0]} and {axes[1].split('=')[0]}: {found}")
    print(f"nadi memory plan: {measure(nadi('memory', 'plan'), runs=1)}")
    single = json.loads(json.dumps(machine)) | {"mem2": machine["mem2"] | {"GiB": 0}}
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, told in (("model", model), ("large", large), ("wide", wide), ("one", single)):
            paths[name] = str(Path(folder) / f"{name}.json")
            Path(paths[name]).write_text(json.dumps(told))
        for name, ranks, batch, options in (
            ("large", 5128, 2520, ["--round-batch", "--set", "datatype=bfloat16", "--set",
                                   "fused_activation=true,false"]),
            ("model", 512, 8192, [word for one in WIDE for word in ("--set", one)]),
        ):  # fmt: skip
            told = large if name == "large" else model
            system = "one" if name == "large" else "wide"
            given = {one.split("=")[0]: _values(one) for one in options if "=" in one}
            space = search_space(
                msgspec.convert(told, ModelDescription),
                msgspec.convert(single if name == "large" else wide, MachineDescription),
                ranks, batch, given, round_batch="--round-batch" in options, rules=CALCULON,
            )  # fmt: skip
            command(
                f"{name} on {ranks} ranks",
                [paths[name], paths[system], "--ranks", str(ranks), "--global-batch",
                 str(batch), *options, *COMPAT], space.size,
            )  # fmt: skip


def _values(text: str) -> list[Any]:
    truth = {"true": True, "false": False}
    return [truth.get(one, one) for one in text.split("=")[1].split(",")]


if __name__ == "__main__":
    main()
