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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
_MAMF_BFLOAT16 = {"NVIDIA GB200 SXM": "gb200", "AMD MI300X": "mi300x"}
# how hardware is called; an H800 is an H100 with slower links between devices, and a Blackwell
# that is not named has the GB200's peak of 2.5 PFLOP/s, as its shares of the peak say
_DEVICES = {
    "GB200": "gb200", "B200": "b200", "Blackwell": "gb200", "H200": "h200", "H100": "h100",
    "H800": "h100", "A100": "a100", "A40": "a40", "MI300X": "mi300x",
    "RTX PRO 6000": "rtx-pro-6000",
    "(RTX )?4090": "rtx-4090",
}  # fmt: skip
# a row or two, which set the level of a device
_OF_FEW_ROWS = {("gemm", "mi300x"), ("attention", "h100")}
_SMALL = {"a100_80": "a100", "a40": "a40", "h200": "h200"}


FILES = tuple(
    SHARED / "published" / f"{name}.json.gz" for name in ("kernels_vidur_mlp_profiling", "kernels")
)
# what comes of figures that are null, in words, or left out
_UNREADABLE = (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError)


class _NotStatedError(Exception):
    """What a record does not say, or Nadi does not have."""


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


_Reader = Callable[[dict[str, Any], Any], Iterator[Row]]


def is_held_out(name: str) -> bool:
    """Return whether what has this name is held out."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < 50


def published_rows(paths: Sequence[Path] = FILES) -> list[Row]:
    """Read all rows that can be stated."""
    return stated_rows(paths)[0]


def stated_rows(paths: Sequence[Path] = FILES) -> tuple[list[Row], Counter[str]]:
    """Read the rows of files of records that can be stated; and why others cannot."""
    rows: list[Row] = []
    reasons: Counter[str] = Counter()
    for path in paths:
        with gzip.open(path) as file:
            records: list[dict[str, Any]] = json.load(file)["records"]
        for record in records:
            try:
                reader, lines = _reader_of(record)
            except _NotStatedError as reason:
                reasons[str(reason)] += len(record.get("rows") or [None])
                continue
            for line in lines:
                try:
                    rows += [row for row in reader(record, line) if row.time > 0]
                except _NotStatedError as reason:
                    reasons[str(reason)] += 1
                except _UNREADABLE as error:
                    reasons[f"a figure that is no number or is not there ({error})"] += 1
    return rows, reasons


def _reader_of(record: dict[str, Any]) -> tuple[_Reader, Sequence[Any]]:
    """Choose how a record is read by what it states: what reads a line of it, and its lines."""
    columns, rows = record.get("columns") or [], record.get("rows") or []
    name, names = str(record.get("id")), {str(one).lower() for one in columns}
    kind = str(record.get("class"))
    if "num_tokens" in names:
        return _vidur, rows[::_EVERY]
    if "mamf" in names:
        lines = [line.strip("|").split("|") for line in record.get("context") or ()]
        of_end = [[cell.strip() for cell in one] for one in lines]  # of the table of bfloat16
        return _mamf, [*((row, _FP8) for row in rows), *((row, "bfloat16") for row in of_end)]
    if {"m", "n", "k"} <= names or {"m per group", "n", "k"} <= names:
        return (_deepgemm if "computation" in names else _azure), rows
    if "small-kernels" in name:
        # kernels that stay on the device (gsync, pt) are others
        stays = name.endswith(("-gsync", "-pt"))
        return _small_kernels, [] if stays else record.get("raw_text_lines") or []
    if "seqlen_q" in names:
        return _attention, rows
    if {"hdim", "seqlen"} <= names:
        return _attention_of_size, rows
    if {"fwd", "bwd"} <= names and isinstance(record.get("fixed"), dict):
        return _attention_both_ways, rows[:1]  # of two implementations: the usual one
    if "flash-attention" in name:
        return _attention_of_azure, rows[1:2]
    raise _NotStatedError(f"no kernels with shapes, but {kind} {', '.join(map(str, columns))}")


def _device_of(record: dict[str, Any]) -> str:
    """Give the device whose curves a record is compared with."""
    hardware = str(record.get("hardware"))
    for part, device in _DEVICES.items():
        if re.search(rf"\b{part}", hardware, re.IGNORECASE):
            return device
    raise _NotStatedError(f"no curves of {hardware}")


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


def _vidur(record: dict[str, Any], values: Sequence[Any]) -> Iterator[Row]:
    device, model = _device_of(record), str(record["model"])
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


def _azure(record: dict[str, Any], row: Sequence[str]) -> Iterator[Row]:
    device = _device_of(record)
    dtype = _FP16 if device == "a100" else _FP8
    m, n, k, rate = row
    yield _of_shape(record, device, _gemm(int(m), int(n), int(k), dtype), rate)


def _deepgemm(record: dict[str, Any], row: Sequence[str]) -> Iterator[Row]:
    batch = [int(row[0])] if "Groups" in record["columns"][0] else []
    m, n, k = map(int, row[len(batch) : len(batch) + 3])
    operation = _gemm(m, n, k, _FP8, *batch)
    yield _of_shape(record, _device_of(record), operation, row[len(batch) + 3])


def _mamf(record: dict[str, Any], line: tuple[Sequence[str], str]) -> Iterator[Row]:
    row, dtype = line
    known = _MAMF if dtype == _FP8 else _MAMF_BFLOAT16
    if row[0] in known and row[1]:
        m, n, k = map(int, row[4].split("x"))
        yield _of_shape(record, known[row[0]], _gemm(m, n, k, dtype), row[1])


def _small_kernels(record: dict[str, Any], line: str) -> Iterator[Row]:
    """Yield kernels that scale a vector of doubles, launched one after the other."""
    found = _SMALL_KERNELS.fullmatch(line)
    device = _SMALL.get(record["hardware"])
    if not found:
        return
    if device is None:
        raise _NotStatedError(f"no curves of {record['hardware']}")
    size = int(found[1]) * 16
    time = size / max(map(float, found[2].split()))
    group = f"copy {size}"
    yield Row(
        record["id"], group, device, time=time, resolution=0.0,
        is_held_out=is_held_out(group), **_bound("copy", size),
    )  # fmt: skip


def _attention(record: dict[str, Any], row: Sequence[str]) -> Iterator[Row]:
    """Yield fused attention; operations and times agree for heads of 128, 32 of them."""
    causal = row[0] == "True"
    cells = row[1:] if row[0] in ("True", "False") else row
    batch, queries, keys = map(int, cells[:3])
    part = (keys - queries / 2) / keys if causal else 1.0
    # the table states times, too, with fewer digits
    operation = _fused(batch * 32, queries, keys, 128, part)
    yield _of_shape(record, _device_of(record), operation, cells[4])


def _attention_both_ways(record: dict[str, Any], row: Sequence[Any]) -> Iterator[Row]:
    fixed, (_, forward, backward) = record["fixed"], row
    shape = fixed["B"] * fixed["H"], fixed["S"], fixed["S"], fixed["D"]
    for part, rate in ((1.0, forward), (2.5, backward)):
        yield _of_shape(record, _device_of(record), _fused(*shape, part), str(rate))


def _attention_of_size(record: dict[str, Any], row: Sequence[Any]) -> Iterator[Row]:
    size, causal, batch, length, _, rate, *_ = row
    heads = 2048 // size * batch  # hidden size of the benchmark
    operation = _fused(heads, length, length, size, 0.5 if causal else 1.0)
    yield _of_shape(record, _device_of(record), operation, str(rate))


def _attention_of_azure(record: dict[str, Any], row: Sequence[str]) -> Iterator[Row]:
    # the number of heads is not stated: 2048 in all, as in that benchmark
    yield _of_shape(record, _device_of(record), _fused(2 * 16, 8192, 8192, 128, 1.0), row[1])


def _fused(heads: int, queries: int, keys: int, width: int, part: float) -> dict[str, Any]:
    whole = 4 * heads * queries * keys * width
    size = 2 * heads * width * (2 * queries + 2 * keys)
    return {
        "op_class": "attention", "dtype": "bfloat16", "flops": round(whole * part),
        "bytes": size * (2 if part > 1 else 1), "shape": (heads, queries, keys, width),
    }  # fmt: skip
