"""``nadi.read`` of a host trace of 195,000 nodes: over 0.5 M nodes/s.

Usage: python benchmarks/read_host.py [FILE.json.gz]
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

from _measure import SHARED, content_size, measure_read, report_read


def main() -> None:
    given = sys.argv[1] if len(sys.argv) > 1 else SHARED / "traces/cpu_transformer_big/host.json.gz"
    packed = Path(given)
    count = measure_read(packed).nodes  # and compiled kernels
    report_read(packed, content_size(packed), count, "nodes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.json"
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        report_read(path, path.stat().st_size, count, "nodes")


if __name__ == "__main__":
    main()
