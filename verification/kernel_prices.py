"""Kernel prices: predicted times against all published ones that state shapes, with intervals.

Per class and device: median and 90th percentile of the absolute relative error, and how many
measurements lie in the stated interval; rows that the curves were fitted to and rows that were
held out apart. Fails unless the intervals hold 90 % of the rows that were held out, on each
device whose curves were fitted to measurements of its own, and over all. Rows that cannot be stated
are counted, by reason.

    python verification/kernel_prices.py [FILE.json.gz ...]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _published_kernels import FILES, Row, stated_rows

from nadi.systems import load_device, plain_device, price, shipped_devices
from nadi.trace import Operations, dtype_code, op_class_code
from nadi.trace.arrays import Bools, Floats

COVERED = 0.9
MANY = 60  # rows, of which a share says something


def operations_of(rows: Sequence[Row], op_class: str | None = None) -> Operations:
    """Return rows as columns; all of one class, if it is given."""
    return Operations(
        np.array([row.flops for row in rows], dtype=np.int64),
        np.array([row.bytes for row in rows], dtype=np.int64),
        np.array(
            [op_class_code(row.op_class if op_class is None else op_class) for row in rows],
            dtype=np.int64,
        ),
        np.array([dtype_code(row.dtype) for row in rows], dtype=np.int64),
        np.array([row.shape for row in rows], dtype=np.int64).reshape(-1, 4),
    )


def judged(rows: Sequence[Row], device: str, op_class: str | None = None) -> tuple[Floats, Bools]:
    """Return the relative error of each row, and whether it lies in the interval."""
    found = price(operations_of(rows, op_class), load_device(device))
    time = np.array([row.time for row in rows])
    resolution = np.array([row.resolution for row in rows])
    inside = (time >= found.low - resolution) & (time <= found.high + resolution)
    return np.abs(found.duration / time - 1), inside


def line(what: str, error: Floats, inside: Bools) -> str:
    """Return a row of the table."""
    if not error.size:
        return f"{what} |     - |      - |      - |       -"
    return (
        f"{what} | {error.size:5d} | {np.median(error):6.1%} | {np.quantile(error, 0.9):6.1%} "
        f"| {inside.mean():7.1%}"
    )


def main() -> int:
    """Print the table, and return 1 unless intervals hold what they state."""
    paths = [Path(name) for name in sys.argv[1:]] or FILES
    rows, reasons = stated_rows(paths)
    print(f"{len(rows)} rows stated, {reasons.total()} not")
    for reason, count in reasons.most_common():
        print(f"{count:7} {reason}")
    print()
    parts: dict[tuple[str, str, bool], list[Row]] = defaultdict(list)
    for row in rows:
        parts[row.op_class, row.device, row.is_held_out].append(row)
    print("class       | device | rows     | count | median | 90th % | interval")
    held: dict[str, list[Bools]] = defaultdict(list)
    num_inside = 0
    for (op_class, device, is_held_out), own in sorted(parts.items()):
        error, inside = judged(own, device)
        share = "held out" if is_held_out else "fitted"
        print(line(f"{op_class:11} | {device:6} | {share:8}", error, inside))
        num_inside += int(inside.sum())
        if is_held_out:
            held[device].append(inside)
    print("\nthe same operations, if only operations and bytes are known")
    for device in ("a100", "a40", "h100"):
        own = [row for row in rows if row.device == device and row.op_class == "gemm"]
        own = [row for row in own if row.is_held_out]
        print(line(f"gemm        | {device:6} | held out", *judged(own, device, "")))
    print("and if they are stated as elementwise")
    for device in ("a100", "a40", "h100"):
        own = [row for row in rows if row.op_class in ("add", "activation", "rope")]
        own = [row for row in own if row.is_held_out and row.device == device]
        print(line(f"elementwise | {device:6} | held out", *judged(own, device, "elementwise")))
    plain(rows)
    hold = []
    print()
    for device in shipped_devices():
        if not held[device]:
            continue
        every = np.concatenate(held[device])
        print(f"{device}: the interval holds {every.mean():.1%} of {every.size} held-out rows")
        if every.size >= MANY:
            hold.append(bool(every.mean() >= COVERED))
    every = np.concatenate([inside for of_device in held.values() for inside in of_device] or [
        np.ones(0, dtype=np.bool_)])  # fmt: skip
    print(f"all: the interval holds {every.mean():.1%} of {every.size} held-out rows")
    hold.append(bool(every.mean() >= COVERED))
    print(f"{num_inside} of {len(rows)} rows lie in their interval")
    # of devices with enough rows, and of all together, whether intervals hold what they promise
    print(f"{sum(hold)} of {len(hold)} exact")
    return 0 if all(hold) else 1


def plain(rows: Sequence[Row]) -> None:
    """Print how far a plain roofline is from measurements."""
    ratios = []
    for device in ("a100", "a40", "h100"):
        known = load_device(device)
        own = [row for row in rows if row.device == device and row.op_class != "copy"]
        if not own:
            continue
        found = price(operations_of(own), plain_device(known.peak[""], known.bandwidth))
        ratios.append(np.array([row.time for row in own]) / np.maximum(found.duration, 1))
    if not ratios:
        return
    ratio = np.concatenate(ratios)
    low, middle, high = np.quantile(ratio, [0.05, 0.5, 0.95])
    print(f"plain roofline: measured over predicted {middle:.2f}, 90 % in {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    sys.exit(main())
