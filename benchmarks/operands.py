"""The tables of tensors and operands of the largest host trace: the target is 0.5 s.

Usage: python benchmarks/operands.py [FILE]
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

from _measure import SHARED

from nadi.trace.attributes import AttributeBuilder, Attributes
from nadi.trace.operands import operand_tables


def attributes_of(file: Path) -> Attributes:
    """Read the texts of a PyTorch execution trace of schema 1.0.2 or later."""
    builder = AttributeBuilder()
    for row, node in enumerate(json.loads(gzip.decompress(file.read_bytes()))["nodes"]):
        for side in ("inputs", "outputs"):
            for kind, values in node[side].items():
                text = json.dumps(values, separators=(",", ":"))
                builder.add(row, f"{side}.{kind}", "operand", text)
    return builder.build()


def main() -> None:
    default = SHARED / "traces/cpu_transformer_big/host.json.gz"
    attributes = attributes_of(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    seconds = []
    for _ in range(8):
        begin = time.perf_counter()
        tables = operand_tables(attributes)
        seconds.append(time.perf_counter() - begin)
    size = attributes.bytes().size / 1e6
    print(f"{size:.0f} MB of text: {tables.operands.height:,} operands, {tables.tensors.height:,}"
          f" tensors; first {seconds[0]:.2f} s, then {min(seconds[1:]):.3f} to"
          f" {max(seconds[1:]):.3f} s, {size / min(seconds[1:]):.0f} MB/s")  # fmt: skip


if __name__ == "__main__":
    main()
