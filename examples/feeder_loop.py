"""Feed traces to a simulator of one's own: each rank runs one node of a kind at a time.

Usage: python feeder_loop.py [TRACES RESULTS]
"""

import heapq
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nadi


def time_alone(trace: Path) -> int:
    """Return the time of a rank in us, if communication takes its recorded time."""
    feeder = nadi.ETFeeder(trace)
    running: list[tuple[int, int]] = []  # (end in us, id)
    busy: set[tuple[bool, str]] = set()
    now = 0

    def start_ready() -> None:
        blocked = []
        while (node := feeder.get_next_issuable_node()) is not None:
            slot = node.is_cpu_op, str(node.type)
            if slot in busy:
                blocked.append(node.id)
                continue
            busy.add(slot)
            heapq.heappush(running, (now + max(node.runtime, 0), node.id))
        for number in blocked:
            feeder.push_back_issuable_node(number)

    start_ready()
    while running:
        now, number = heapq.heappop(running)
        node = feeder.lookup_node(number)
        busy.discard((node.is_cpu_op, str(node.type)))
        feeder.free_children_nodes(number)
        feeder.remove_node(number)
        start_ready()
    assert not feeder.has_nodes_to_issue()
    return now


def main(traces: Path, results: Path) -> None:
    """Write a recording as traces for simulators, and run each rank alone."""
    files = nadi.simulation.write_for_astra_sim(nadi.load_job(traces), results / "simulation")
    for rank, trace in enumerate(files.traces):
        print(f"rank {rank} takes {time_alone(trace) / 1e3:.1f} ms")


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
