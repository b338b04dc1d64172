"""Published measurements of kernels as rows: what ran, on what, how long; and which are held out.

Vidur's tables state sums of the device times of the kernels of each operation of a transformer,
in whole microseconds; the other tables state rates. Held out are whole models of Vidur's, and
rows of the other tables, by a hash of their names: curves are never fitted to these.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _report import SHARED

_ITEM = 2  # bytes of an element: all of Vidur's operations are in float16
_FP8, _FP16 = "float8_e4m3fn", "float16"
_EVERY = 5  # of Vidur's rows by number of tokens, which differ little from each other
_SMALL_KERNELS = re.compile(r"\s*(\d+)\s+\d+kB((?:\s+\d+)+)\s*")
_MAMF = {
    "NVIDIA GH200 SXM": "h100", "NVIDIA H200 SXM": "h200", "NVIDIA H100 SXM": "h100",
    "NVIDIA B200 SXM": "b200", "NVIDIA GB200 SXM": "gb200",
}  # fmt: skip
# a row or two, which set the level of a device
_OF_FEW_ROWS = {("gemm", "mi300x"), ("attention", "h100")}
_SMALL = {"a100_80": "a100", "a40": "a40", "h200": "h200"}


class Row(NamedTuple):
    """One measurement: flops and bytes of an operation with a shape, and its time in ns."""

    source: str
    group: str  # what is held out as a whole
    device: str
    op_class: str
    dtype: str
    flops: int
    bytes: int
    shape: tuple[int, int, int, int]
    time: float
    resolution: float  # ns
    is_held_out: bool


def is_held_out(name: str) -> bool:
    """Return whether what has this name is held out."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < 50


def published_rows(folder: Path = SHARED / "published") -> list[Row]:
    """Read all rows."""
    rows: list[Row] = []
    for record in _records(folder / "kernels_vidur_mlp_profiling.json.gz"):
        rows += _vidur(record)
    for record in _records(folder / "kernels.json.gz"):
        name = record["id"]
        if "gemm" in name and name.startswith("azure"):
            rows += _azure(record)
        elif name.startswith("deepgemm"):
            rows += _deepgemm(record)
        elif "mamf" in name:
            rows += _mamf(record)
        elif name.startswith("gpubenches-gpu-small-kernels"):
            rows += _small_kernels(record)
        elif name.startswith(("liangan1", "fa2", "fa4")) or "flash-attention" in name:
            rows += _attention(record)
    return rows


def _records(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)["records"]
    return found


def _gemm(m: int, n: int, k: int, dtype: str, batch: int = 1) -> dict[str, Any]:
    item, out = (1, 2) if dtype == _FP8 else (2, 2)
    return {
        "op_class": "gemm", "dtype": dtype, "flops": 2 * batch * m * n * k,
        "bytes": batch * ((m * k + k * n) * item + m * n * out), "shape": (batch, m, n, k),
    }  # fmt: skip


def _bound(op_class: str, size: int) -> dict[str, Any]:
    no_shape = (-1, -1, -1, -1)
    return {
        "op_class": op_class, "dtype": _FP16, "flops": 0, "bytes": size, "shape": no_shape,
    }  # fmt: skip


def _vidur(record: dict[str, Any]) -> Iterator[Row]:
    device, model = record["id"].split("-")[2], record["model"]
    for number, values in enumerate(record["rows"]):
        if number % _EVERY:
            continue
        row = dict(zip(record["columns"], values, strict=True))
        for column, operation in _operations(row).items():
            if time := row.get(f"{column}_median_ms"):
                yield Row(
                    record["id"], model, device, time=time * 1e6, resolution=500.0,
                    is_held_out=is_held_out(model), **operation,
                )  # fmt: skip


def _operations(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the operations that a row of Vidur's times, by their columns."""
    tokens, split = row["num_tokens"], row["num_tensor_parallel_workers"]
    wide, heads, kv = row["n_embd"], row["n_head"], row["n_kv_head"]
    size = wide // heads
    gated = row["use_gated_mlp"] == "True"
    inner = row["n_expanded_embd"] // split
    projected = (heads + 2 * kv) * size // split
    state = tokens * wide * _ITEM
    found = {
        "attn_pre_proj": _gemm(tokens, projected, wide, _FP16),
        "attn_post_proj": _gemm(tokens, wide, heads * size // split, _FP16),
        "mlp_up_proj": _gemm(tokens, inner * (1 + gated), wide, _FP16),
        "mlp_down_proj": _gemm(tokens, wide, inner, _FP16),
        "emb": _bound("embedding", 2 * state),
        "input_layernorm": _bound("norm", 2 * state),
        "post_attention_layernorm": _bound("norm", 2 * state),
        "attn_rope": _bound("rope", 2 * tokens * (heads + kv) // split * size * _ITEM),
        "mlp_act": _bound("activation", tokens * inner * _ITEM * (3 if gated else 2)),
    }
    if gated:  # else two additions are timed as one
        found["add"] = _bound("add", 3 * state)
    return found


def _of_shape(record: dict[str, Any], device: str, operation: dict[str, Any], rate: str) -> Row:
    """Return a row of a table of rates; the shape says whether it is held out."""
    part = operation["flops"] / max(1, np.prod(operation["shape"], dtype=float))
    group = f"{operation['op_class']} {operation['shape']} {part:.2f}"
    value = float(rate.split()[0])
    time = operation["flops"] / value / 1e3  # TFLOP/s
    return Row(
        record["id"], group, device, time=time, resolution=0.0,
        is_held_out=is_held_out(group) and (operation["op_class"], device) not in _OF_FEW_ROWS,
        **operation,
    )  # fmt: skip


def _azure(record: dict[str, Any]) -> Iterator[Row]:
    device = record["id"].split("_")[1]
    dtype = _FP16 if device == "a100" else _FP8
    for m, n, k, rate in record["rows"]:
        yield _of_shape(record, device, _gemm(int(m), int(n), int(k), dtype), rate)


def _deepgemm(record: dict[str, Any]) -> Iterator[Row]:
    for row in record["rows"]:
        batch = [int(row[0])] if "Groups" in record["columns"][0] else []
        m, n, k = map(int, row[len(batch) : len(batch) + 3])
        operation = _gemm(m, n, k, _FP8, *batch)
        # an H800 is an H100 with slower links between devices
        yield _of_shape(record, "h100", operation, row[len(batch) + 3])


def _mamf(record: dict[str, Any]) -> Iterator[Row]:
    for row in record["rows"]:
        if row[0] in _MAMF and row[1]:
            m, n, k = map(int, row[4].split("x"))
            yield _of_shape(record, _MAMF[row[0]], _gemm(m, n, k, _FP8), row[1])
    for line in record["context"]:  # the end of the table of bfloat16
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        device = {"NVIDIA GB200 SXM": "gb200", "AMD MI300X": "mi300x"}.get(cells[0])
        if device:
            m, n, k = map(int, cells[4].split("x"))
            yield _of_shape(record, device, _gemm(m, n, k, "bfloat16"), cells[1])


def _small_kernels(record: dict[str, Any]) -> Iterator[Row]:
    """Yield kernels that scale a vector of doubles, launched one after the other.

    Kernels that stay on the device (gsync, pt) are others.
    """
    if record["id"].endswith(("-gsync", "-pt")):
        return
    device = _SMALL.get(record["hardware"])
    for line in record["raw_text_lines"] if device else ():
        found = _SMALL_KERNELS.fullmatch(line)
        if not found:
            continue
        size = int(found[1]) * 16
        time = size / max(map(float, found[2].split()))
        group = f"copy {size}"
        yield Row(
            record["id"], group, str(device), time=time, resolution=0.0,
            is_held_out=is_held_out(group), **_bound("copy", size),
        )  # fmt: skip


def _attention(record: dict[str, Any]) -> Iterator[Row]:
    """Yield rows of fused attention; other kernels in these tables are left out."""
    name = record["id"]
    if name.startswith("liangan1"):
        # operations and times agree for heads of 128, 32 of them
        for row in record["rows"]:
            causal = row[0] == "True"
            cells = row[1:] if row[0] in ("True", "False") else row
            batch, queries, keys = map(int, cells[:3])
            part = (keys - queries / 2) / keys if causal else 1.0
            # the table states times, too, with fewer digits
            yield _of_shape(record, "a100", _fused(batch * 32, queries, keys, 128, part), cells[4])
    elif name.startswith("fa2"):
        fixed = record["fixed"]
        shape = fixed["B"] * fixed["H"], fixed["S"], fixed["S"], fixed["D"]
        _, forward, backward = record["rows"][0]  # of two implementations: the usual one
        yield _of_shape(record, "h100", _fused(*shape, 1.0), str(forward))
        yield _of_shape(record, "h100", _fused(*shape, 2.5), str(backward))
    elif name.startswith("fa4"):  # a peak of 2.5 PFLOP/s follows from its shares of the peak
        for size, causal, batch, length, _, rate, *_ in record["rows"]:
            heads = 2048 // size * batch  # hidden size of the benchmark
            operation = _fused(heads, length, length, size, 0.5 if causal else 1.0)
            yield _of_shape(record, "gb200", operation, str(rate))
    else:  # the number of heads is not stated: 2048 in all, as in that benchmark
        yield _of_shape(record, "h200", _fused(2 * 16, 8192, 8192, 128, 1.0), record["rows"][1][1])


def _fused(heads: int, queries: int, keys: int, width: int, part: float) -> dict[str, Any]:
    whole = 4 * heads * queries * keys * width
    size = 2 * heads * width * (2 * queries + 2 * keys)
    return {
        "op_class": "attention", "dtype": "bfloat16", "flops": round(whole * part),
        "bytes": size * (2 if part > 1 else 1), "shape": (heads, queries, keys, width),
    }  # fmt: skip
