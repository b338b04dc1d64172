"""Kernel times of a generated ResNet-50 beside those that were recorded, by class.

Usage: python benchmarks/recorded_resnet.py

The recording is three steps of PyTorch on an A100 with 32 images, in float32, whose convolutions
ran on tensor cores as TF32: so the device's peak for float32 is that of TF32. Nothing is
fitted to it: prices are the curves of the device (docs/pricing.md). Conversions of layouts, which
cuDNN puts around convolutions, are counted with them.
"""

from __future__ import annotations

import msgspec
import polars as pl
from _measure import SHARED

import nadi

RECORDING = SHARED / "traces" / "gpu_resnet_pair" / "device.json.gz"
STEPS = 3
TF32 = 156e12  # NVIDIA A100 data sheet
# parts of kernels' names, by what they are part of
RECORDED = (
    ("norm", ("bn_fw", "bn_bw")),
    ("activation", ("clamp", "threshold")),
    ("add", ("BinaryFunctor<float, float, float, at::native::AddF", "CUDAFunctor_add")),
    ("pool", ("pool",)),
    ("optimizer", ("multi_tensor",)),
    ("conv", ("cudnn", "cutlass", "gemm", "nchwToNhwc", "nhwcToNchw")),
)


def main() -> None:
    recorded, priced = recorded_ms(), priced_ms()
    print(f"{'class':12} {'recorded':>10} {'priced':>10} {'error':>8}")
    for name in recorded:
        report(name, recorded[name], priced[name])
    report("together", sum(recorded.values()), sum(priced.values()))


def report(name: str, recorded: float, priced: float) -> None:
    error = 100 * (priced / recorded - 1)
    print(f"{name:12} {recorded:7.2f} ms {priced:7.2f} ms {error:+7.1f}%")


def recorded_ms() -> dict[str, float]:
    """Give the milliseconds of a step by class, of kernels that belong to one."""
    nodes = nadi.read(str(RECORDING)).nodes.filter(pl.col("category") == "kernel")
    found = dict.fromkeys((name for name, _ in RECORDED), 0.0)
    for kernel, time in nodes.select(pl.col("name").cast(pl.String), "duration").rows():
        if "nccl" in kernel:
            continue
        for name, parts in RECORDED:
            if any(part in kernel for part in parts):
                found[name] += time / 1e6 / STEPS
                break
    return found


def priced_ms() -> dict[str, float]:
    """Give the milliseconds of a generated step by class."""
    device = nadi.systems.load_device("a100")
    device = msgspec.structs.replace(device, peak={**device.peak, "float32": TF32})
    job = nadi.models.network_job("resnet50", batch=32, dtype="float32")
    trace, _ = nadi.systems.price_trace(job.traces[0], device)
    attributes = trace.attributes
    rows = attributes.rows_named("op_class")
    time = trace.nodes["duration"].to_list()
    found = dict.fromkeys((name for name, _ in RECORDED), 0.0)
    for row in rows.tolist():
        name = attributes.python_value(row)
        name = {"gemm": "conv", "elementwise": "pool"}.get(name, name)
        if name in found:
            found[name] += time[attributes.node[row]] / 1e6
    return found


if __name__ == "__main__":
    main()
