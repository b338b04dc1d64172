"""A change that Nadi does not have: every call of the host costs a fixed time less.

A change is any object with ``apply(graph, since)`` that returns another graph, and a text. It
composes with all other changes.

Usage: python own_change.py [TRACES RESULTS]
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import nadi


@dataclass(frozen=True)
class CheaperCalls:
    """Take ``ns`` from each stretch of time of a host operation, down to zero."""

    ns: int

    def __str__(self) -> str:
        return f"every host operation {self.ns} ns cheaper"

    def apply(self, graph: nadi.EventGraph, since: int = 0) -> nadi.EventGraph:
        """Return the graph with smaller weights; the given one stays as it is."""
        is_host = graph.edge_kind == nadi.graph.EdgeKind.HOST_OP
        after = graph.time[graph.destinations] > since  # nothing changes before the window
        weight = np.where(is_host & after, np.maximum(graph.weight - self.ns, 0), graph.weight)
        return graph.with_weights(weight)


def main(traces: Path, results: Path) -> None:
    """Print what the change gains, alone and with another one."""
    run = nadi.run(traces)
    lines = []
    for changes in ([CheaperCalls(1_000)], [CheaperCalls(1_000), "scale aten::mm 0.5"]):
        answer = nadi.what_if(run.graph, *changes, window=run.window)
        lines.append(f"{' and '.join(map(str, changes))}: {answer.gain_ns / 1e6:.2f} ms less")
    print("\n".join(lines))
    (results / "gain.txt").write_text("\n".join(lines))


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
