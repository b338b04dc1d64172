"""Published measurements of CXL memory and offloading beside what Nadi says of them.

    python benchmarks/published_memory_tiers.py [FILE...]

Each row that the model can state is predicted from what data sheets and the row's own record say of
the machine; what is taken from a measurement (an idle latency, a peak) is named and not compared.
Nothing is fitted to a row. Records that cannot be stated are listed with the reason. FlexGen's
own table is printed as well, but its rates are not independent: its authors fitted them to runs of
their program.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from _measure import SHARED

from nadi.estimates import describe_step, estimate
from nadi.memory import inference_of_model, load_offload_machine, place_block
from nadi.models import load_language_model
from nadi.systems import (
    LoadedLatency,
    MemoryTier,
    System,
    load_system,
    loaded_latency_ns,
    price,
    rate_alone,
)
from nadi.systems.memory_tiers import peak_rate
from nadi.trace import Operations, dtype_code, op_class_code

FILE = "published/memory_tiers_cxl_offload.json.gz"
SYSTEMS = Path(__file__).parent / "systems"
TIERS, GH200 = str(SYSTEMS / "memory-tiers.toml"), str(SYSTEMS / "gh200.toml")
Record = dict[str, Any]


class Row(NamedTuple):
    """A measurement and what is said of it, both in one unit."""

    what: str
    measured: float
    predicted: float
    unit: str = "GB/s"

    @property
    def error(self) -> float:
        """By which share the prediction is too high."""
        return self.predicted / self.measured - 1


def main() -> None:
    records: dict[str, Record] = {}
    for path in [Path(one) for one in sys.argv[1:]] or [SHARED / FILE]:
        for record in json.loads(gzip.decompress(path.read_bytes()))["records"]:
            records[record["id"]] = record
    kinds: dict[str, list[float]] = {}
    left = []
    for name, record in records.items():
        found = list(rows_of(record))
        if not found:
            left.append(name)
            continue
        print(f"{name}")
        for kind, takes, rows in found:
            show(kind, takes, rows)
            kinds.setdefault(kind, []).extend(row.error for row in rows)
    print("\nmean absolute error, of all rows of a kind")
    for kind, errors in kinds.items():
        print(f"  {np.mean(np.abs(errors)):6.1%}  {len(errors):3} rows  {kind}")
    errors = [error for some in kinds.values() for error in some]
    print(f"  {np.mean(np.abs(errors)):6.1%}  {len(errors):3} rows  all")
    print(f"\nnot stated: {len(left)} of {len(records)} records")
    for name in left:
        print(f"  {name}: {NOT_STATED.get(name, 'no rule for this record')}")
    partly = [name for name in PARTLY if name in records]
    print("\nnot stated of the others")
    for name in partly:
        print(f"  {name}: {PARTLY[name]}")
    show_flexgen()


def show(kind: str, takes: str, rows: list[Row]) -> None:
    """Print rows with their errors."""
    print(f"  {kind}; from {takes}")
    for row in rows:
        print(f"    {row.what:44} {row.measured:9.2f} {row.predicted:9.2f} {row.unit:8} "
              f"{row.error:+7.1%}")  # fmt: skip
    print(f"    mean absolute error {np.mean([abs(row.error) for row in rows]):.1%}")


Stated = Iterator[tuple[str, str, list[Row]]]


def rows_of(record: Record) -> Stated:
    """Give the rows of a record by kind, and what the predictions take from elsewhere."""
    if record["id"] in RULES:
        yield from RULES[record["id"]](record)
    elif "raw_text_lines" in record:
        yield from of_latency_checker(record)


# latency and bandwidth of memory


def of_latency_checker(record: Record) -> Stated:
    """State the output of Intel's Memory Latency Checker."""
    text = "\n".join(record["raw_text_lines"])
    idle = re.search(r"Numa node +0.*\n +0 +([\d.]+)", text)
    mixes = {
        name: float(rate) / 1e3 for name, rate in re.findall(r"(.+?) *: +([\d.]+)$", text, re.M)
    }
    loads = [
        (float(latency), float(rate) / 1e3)
        for latency, rate in re.findall(r"^ *\d{5} +([\d.]+) +([\d.]+)$", text, re.M)
    ]
    if idle is None or "ALL Reads" not in mixes:
        return
    peak = mixes["ALL Reads"]
    if loads:
        curve = LoadedLatency(idle_ns=float(idle[1]), read_gbps=peak, write_gbps=peak)
        tier = MemoryTier(name="dram", kind="dram", read_bandwidth=peak, write_bandwidth=peak,
                          latency=float(idle[1]), loaded=curve)  # fmt: skip
        yield (
            "latency under load", "idle latency and bandwidth of reads",
            [Row(f"at {rate:.1f} of {peak:.1f} GB/s", latency, loaded_latency_ns(tier, rate), "ns")
             for latency, rate in loads],
        )  # fmt: skip
    half = mixes.get("1:1 Reads-Writes")
    if half is not None and half < peak:
        write = 1 / (2 / half - 1 / peak)
        rows = []
        for name, reads in (("3:1 Reads-Writes", 3 / 4), ("2:1 Reads-Writes", 2 / 3)):
            if name in mixes:
                rows.append(Row(name, mixes[name], _mixed(peak, write, reads)))
        yield "bandwidth of mixed reads and writes", "ALL Reads and 1:1", rows


def named(system: System, name: str) -> MemoryTier:
    """Give a tier of a system."""
    return next(tier for tier in system.tiers if tier.name == name)


def _mixed(read: float, write: float, reads: float) -> float:
    """Give the peak of a mix: what the curve of loaded latency has there."""
    curve = LoadedLatency(idle_ns=100, read_gbps=read, write_gbps=write)
    return float(peak_rate(curve, np.array([reads]))[0]) / 1e9


def of_duplex_dump(record: Record) -> Stated:
    """State a memory behind a link that carries reads and writes at once."""
    rates = {name: value / 1e3 for name, value in record["rows"] if "latency" not in name}
    read = rates["ALL Reads"]
    rows = [
        Row(name, rates[name], read / reads)
        for name, reads in (("3:1 R/W", 0.75), ("2:1 R/W", 2 / 3))
    ]
    yield "bandwidth of mixed reads and writes", "ALL Reads; writes are no limit", rows


def of_redis(record: Record) -> Stated:
    """State a service whose time grows with the share of its pages in CXL memory."""
    text = next(one for one in record["statements"] if one.startswith("Redis"))
    shares, losses = (
        [float(n) / 100 for n in re.findall(r"\d+", part)] for part in text.split("%", 1)
    )
    slower = 1 / (1 - losses[-1]) - 1
    rows = [
        Row(
            f"rate with {share:.0%} in CXL, of that without", 1 - loss, 1 / (1 + slower * share), ""
        )
        for share, loss in list(zip(shares, losses, strict=True))[:-1]
    ]
    yield "interleaved pages", "the rate with all pages in CXL", rows


def of_micron(record: Record) -> Stated:
    """State a CXL module by its lanes, and modules beside DRAM."""
    tier = named(load_system(TIERS, 1), "cz120")
    read, write = (rate_alone(tier, store=store) for store in (False, True))
    measured = float(record["rows"][0][2].split()[0])
    yield (
        "links", "generation and lanes",
        [Row("CXL 2.0 x8, 2:1 reads to writes", measured, min(read * 3 / 2, write * 3))],
    )  # fmt: skip
    dram = 12 * 38.4  # assumed: DDR5-4800
    gain = float(record["rows"][1][2].strip("+%")) / 100
    yield (
        "interleaved pages", "the rate of a module; assumed: 12 x DDR5-4800 at its peak",
        [Row("4 modules beside 12 DIMMs, of that without", 1 + gain, 1 + 4 * measured / dram, "")],
    )  # fmt: skip


def of_copies(record: Record) -> Stated:
    """State copies between host and device by PCIe's generation."""
    system = load_system(TIERS, 1)
    rows = []
    for name, to_device, to_host, _ in record["rows"]:
        tier = named(system, "host-pcie4" if "A100" in name else "host-pcie5")
        path = system.path_of(tier)
        for way, measured, store in (("H2D", to_device, False), ("D2H", to_host, True)):
            if measured > 10:  # the other one is a typo, as the record notes
                rows.append(Row(f"{name} {way}", measured, rate_alone(tier, path, store=store)))
    yield "links", "generation and lanes", rows


def of_gh200(record: Record) -> Stated:
    """State the memories and the link of a Grace Hopper."""
    system = load_system(GH200, 1)
    measured = dict(record["rows"])
    lpddr, grace = named(system, "lpddr"), named(system, "grace")
    path = system.path_of(grace)
    yield (
        "links", "data sheet",
        [Row("NVLink-C2C host to device", measured["NVLink-C2C host-to-device"],
             rate_alone(grace, path)),
         Row("NVLink-C2C device to host", measured["NVLink-C2C device-to-host"],
             rate_alone(grace, path, store=True))],
    )  # fmt: skip
    size = 1 << 33
    unknown = np.full((1, 4), -1, dtype=np.int64)
    copied = Operations(
        np.array([0]), np.array([size]), np.array([op_class_code("copy")]),
        np.array([dtype_code("float32")]), unknown,
    )  # fmt: skip
    assert system.compute.device
    time = float(price(copied, system.compute.device).duration[0])
    yield (
        "STREAM", "data sheet; curve of copies on H100",
        [Row("LPDDR5X", measured["Grace STREAM LPDDR5X"], rate_alone(lpddr)),
         Row("HBM3", measured["Hopper STREAM HBM3"], size / time)],
    )  # fmt: skip


def of_raid(record: Record) -> Stated:
    """State reads of four drives at once."""
    text = record["statements"][0]
    reads = re.search(r"up to ([\d.]+) GB/s reads", text)
    assert reads
    tier = named(load_system(TIERS, 1), "raid")
    yield "links", "the drives' rate", [Row("reads of 4 drives", float(reads[1]), rate_alone(tier))]


# training with offloading


def of_superoffload(record: Record) -> Stated:
    """State fine-tuning with the optimizer's state in the CPU's memory."""
    assert "Qwen3-14B up to 600 TFLOPS, seq 4k, batch 4" in record["statements"][0]
    model = load_language_model("qwen3-14b")
    plan = {"micro_batch": 4, "global_batch": 4, "sequence": 4096, "recompute": "full"}
    step = describe_step(model, GH200, plan, offload=["optimizer"])
    seconds = estimate(step.model, step.machine, step.execution).seconds
    # with what is computed again, as DeepSpeed counts
    work = 8 * model.total_parameters * 4 * 4096
    yield (
        "training", "data sheet; assumed: full recomputation, which its TFLOPS count",
        [Row("Qwen3-14B on 1 GH200", 600, work / seconds / 1e12, "TFLOP/s")],
    )  # fmt: skip


RULES: dict[str, Callable[[Record], Stated]] = {
    "cxl-mlc-dump-292.9ns": of_duplex_dump,
    "demystifying-cxl-micro23-summary": of_redis,
    "micron-cz120-bandwidth": of_micron,
    "azure-host-device-copy": of_copies,
    "gh200-c2c-stream": of_gh200,
    "deepnvme-azure-nvme": of_raid,
    "superoffload-gh200-statements": of_superoffload,
}
NOT_STATED = {
    "cxl-dmsim-real-hw-ratios": "ratios to a DRAM that it does not describe",
    "real-world-cxl-2405.14209": "a range of ratios, of devices that it does not describe",
    "cxl-aic-llm-finetune-2507.03305": "no bandwidth of the memories, no GPU and no batch",
    "zero3-offload-v100-blog": "no batch and no length of sequences, which decide what offloading "
    "costs",
}
PARTLY = {
    "mlc-cxlmemsim-sapphirerapids": "node 1, a device without a name",
    "cxl-mlc-dump-292.9ns": "1:1, which the unknown bandwidth of writes limits; triad",
    "demystifying-cxl-micro23-summary": "efficiencies of controllers, which no data sheet states; "
    "DLRM, whose DRAM channels are not stated",
    "azure-host-device-copy": "D2D, which does not say whether both directions are added; D2H of "
    "A100, a typo by its notes",
    "gh200-c2c-stream": "C2C both summed, which is the sum of two other rows",
    "deepnvme-azure-nvme": "writes, whose rate of a drive is not stated",
    "superoffload-gh200-statements": "GPT-OSS-20B, of which Nadi has no description; ratios to "
    "other programs",
}


# FlexGen

# FMInference/FlexGen, benchmark/batch_size_table.md: tokens/s, prompts of 512, 32 tokens generated.
# Batches and percentages: arXiv 2303.06865, table 15
FLEXGEN = (
    ("opt-6.7b", 2, 1, (1.0, 0.0, 1.0, 0.0, 1.0, 0.0), 25.26),
    ("opt-30b", 48, 3, (0.2, 0.8, 0.0, 1.0, 0.0, 1.0), 7.32),
    ("opt-175b", 32, 8, (0.0, 0.5, 0.0, 0.0, 0.0, 1.0), 0.69),
)


def show_flexgen() -> None:
    """Print FlexGen's own measurements, with the disk of its file and that of its paper."""
    file = msgspec.structs.replace(
        load_offload_machine("t4"), gpu_memory=16 * 2**30, usable_gpu=1.2, usable_cpu=1.2,
        usable_disk=1.2,
    )  # fmt: skip
    # section 6: reads about 2 GB/s, writes about 1 GB/s
    paper = msgspec.structs.replace(
        file, disk_to_cpu=2e9, cpu_to_disk_cache=1e9, cpu_to_disk_decode=1e9
    )
    print("\nFlexGen on a T4 (its rates were fitted by its authors: not in the means above)")
    for disk, machine in (("file", file), ("paper", paper)):
        rows = []
        for model, batch, number, shares, measured in FLEXGEN:
            asked = inference_of_model(load_language_model(model), 512, 32)
            found = place_block(asked, machine, batch, number, shares)
            if found is not None:
                rows.append(Row(f"{model}, {number} x {batch}", measured, found.rate, "tokens/s"))
        show(f"inference, disk as its {disk} states", "its placements, 1.2 x memories", rows)
    print("  opt-6.7b: the model has one rate of computation for all batches, and no time for")
    print("  reading weights from the GPU's own memory")


if __name__ == "__main__":
    main()
