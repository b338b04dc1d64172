"""Link host and device traces, and convert the result for other tools.

Usage: python link_and_convert.py [TRACES RESULTS]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nadi


def main(traces: Path, results: Path) -> None:
    """Write one Chakra trace per rank, and the first one in three more formats."""
    linking = nadi.link_files(traces, output=results / "linked", to="chakra")
    for file in linking.files:
        print(f"rank {file.rank}: {file.nodes:,} nodes, {file.deps:,} dependencies")
    print(f"{linking.num_collectives} collectives matched across ranks")
    linked = nadi.read(results / "linked" / "rank0.et")
    for name in ("rank0.graphml", "rank0.pftrace", "rank0.nadi"):
        left_out = nadi.write(linked, results / name)
        print(name, "leaves out:", left_out["detail"].to_list() or "nothing")
    nadi.read(results / "rank0.nadi").assert_equals(linked)  # lossless


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
