"""Chakra's JSON of 195,000 nodes, as Nadi and as Chakra's jsonizer write it: 0.35 M nodes/s read.

Usage: python benchmarks/chakra_json.py [FILE.et | FOLDER]

A folder is linked first; by default the largest pair at hand.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from _measure import SHARED, report_read

import nadi


def write_objects(path: Path, objects: Path) -> None:
    """Write what Nadi wrote as one object in the form of chakra_jsonizer."""
    content = json.loads(path.read_bytes())
    with objects.open("w") as file:
        for message in (content["globalMetadata"], *content["nodes"]):
            file.write(json.dumps(message, indent=2))


def main() -> None:
    given = Path(sys.argv[1] if len(sys.argv) > 1 else SHARED / "traces/cpu_transformer_big")
    trace = nadi.load_job(given).traces[0] if given.is_dir() else nadi.read(given)
    with tempfile.TemporaryDirectory() as folder:
        path, objects = Path(folder) / "written.json", Path(folder) / "jsonized.json"
        nadi.write(trace, path, to="chakra-json")
        write_objects(path, objects)
        for file in (path, objects):
            report_read(file, file.stat().st_size, trace.nodes.height, "nodes")


if __name__ == "__main__":
    main()
