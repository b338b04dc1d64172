"""Edit the event graph with networkx, here so that no rank waits for another.

Usage: python edit_with_networkx.py [TRACES RESULTS]
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nadi


def main(traces: Path, results: Path) -> None:
    """Remove the edges that make ranks wait in collectives, replay, and draw the result."""
    run = nadi.run(traces)
    graph = nadi.to_networkx(run.graph)
    arrivals = [(u, v) for u, v, kind in graph.edges(data="kind") if kind == "arrival"]
    graph.remove_edges_from(arrivals)
    replay = nadi.graph.replay_graph(nadi.from_networkx(graph))
    before, after = run.window.length(run.graph.time), run.window.length(replay.time)
    print(f"{len(arrivals)} edges removed: {before / 1e6:.1f} ms -> {after / 1e6:.1f} ms")
    path = nadi.critical_path(replay, run.window)
    print({kind: f"{ns / 1e6:.1f} ms" for kind, ns in path.by_kind().items()})
    nadi.graph.write_timeline(results / "no_waiting.pftrace", replay, path)


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
