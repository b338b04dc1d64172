"""Find the bottleneck of each step, and the rank that the others wait for.

Usage: python what_bounds_my_step.py [TRACES RESULTS]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nadi


def main(traces: Path, results: Path) -> None:
    """Print the bottleneck of each step, and write the result files."""
    run = nadi.run(traces)
    for step in run.steps:
        path = nadi.run(traces, step=step.number).path
        by_kind = path.by_kind()
        kind = max(by_kind, key=by_kind.__getitem__)
        top = path.by_operation().row(0, named=True)
        print(
            f"step {step.number}: {path.length / 1e6:.1f} ms, bound by {kind} "
            f"({by_kind[kind] / path.length:.0%}); top operation {top['name']}"
        )
    for rank in run.communication:
        print(f"rank {rank.rank}: {rank.exposed / 1e6:.1f} ms of exposed communication")
    for straggler in run.stragglers.ranks.head(1).iter_rows(named=True):  # none of a single rank
        print(
            f"rank {straggler['rank']} causes most wait time: {straggler['caused'] / 1e6:.1f} ms, "
            f"last in {straggler['times_last']} collectives"
        )
    for file in nadi.bottlenecks.write_results(run, results):
        print("wrote", file.name)


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
