"""Simulate a recording on a DGX H100, and compare with the recorded time.

Usage: python simulate_on_dgx.py [TRACES RESULTS]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nadi


def main(traces: Path, results: Path) -> None:
    """Print where the time of each rank goes, and how fast collectives are."""
    job = nadi.load_job(traces)
    done = nadi.simulate(job, nadi.load_system("dgx-h100", len(job.ranks)))
    found = nadi.simulation.results_of(done)
    print(f"makespan: {done.makespan / 1e6:.1f} ms")
    print(found.rank_times.select("rank", "finish", "computing", "hosting", "awaiting_members"))
    print(found.collective_types.select("type", "count", "bytes", "time", "bus_bandwidth"))
    path = nadi.simulation.simulated_path(done)
    print({kind: f"{ns / 1e6:.1f} ms" for kind, ns in path.by_kind().items()})
    nadi.simulation.write_simulation(done, results / "done.nadi")  # nadi info prints it again


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
