"""Simulate an all-reduce algorithm of one's own: members send everything to rank 0 and back.

A custom collective is a Chakra trace per rank with sends, receives and computations. Here it is
compared with the ring that Nadi has.

Usage: python custom_collective.py [TRACES RESULTS]   (TRACES is not used)
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nadi
from nadi.systems.system import Collectives, Dimension, Network

RANKS, BYTES = 4, 1 << 20


def node(number: int, kind: str, after: list[int], **numbers: int) -> dict[str, Any]:
    """Return a node of Chakra's JSON."""
    attributes: list[dict[str, Any]] = [{"name": "is_cpu_op", "boolVal": False}]
    attributes += [{"name": name, "int64Val": str(value)} for name, value in numbers.items()]
    name = f"{kind.lower()}{number}"
    return {"id": str(number), "name": name, "type": f"{kind}_NODE", "attr": attributes,
            "dataDeps": [str(one) for one in after]}  # fmt: skip


def message(number: int, kind: str, src: int, dst: int, after: list[int]) -> dict[str, Any]:
    """Return one end of a message; the tag tells the way there from the way back."""
    ends = {"comm_src": src, "comm_dst": dst, "comm_tag": src * RANKS + dst, "comm_size": BYTES}
    return node(number, f"COMM_{kind}", after, **ends)


def nodes_of(rank: int) -> list[dict[str, Any]]:
    """Return the part of a rank: rank 0 receives from all, then sends to all."""
    if rank:
        return [message(0, "SEND", rank, 0, []), message(1, "RECV", 0, rank, [0])]
    others = range(1, RANKS)
    receives = [message(k, "RECV", k, 0, []) for k in others]
    return receives + [message(RANKS + k, "SEND", 0, k, list(others)) for k in others]


def write_trace(path: Path, nodes: list[dict[str, Any]]) -> nadi.Trace:
    """Write nodes as a Chakra trace, and read it."""
    text = path.with_suffix(".json")
    text.write_text(json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": nodes}))
    trace = nadi.read(text)
    nadi.write(trace, path)
    return trace


def main(traces: Path, results: Path) -> None:
    """Print the time of both algorithms."""
    for rank in range(RANKS):
        write_trace(results / f"star.{rank}.et", nodes_of(rank))
    job = [node(0, "COMM_COLL", [], comm_type=0, comm_size=BYTES)]  # type 0 is an all-reduce
    trace = write_trace(results / "job.et", job)
    network = Network((Dimension("switch", RANKS, bandwidth=50.0, latency=500.0),))  # B/ns, ns
    for name, collectives in (
        ("ring", Collectives(all_reduce=("ring",))),
        ("star", Collectives(custom={"all_reduce": str(results / "star")})),
    ):
        system = nadi.systems.System(network, collectives=collectives)
        done = nadi.simulate([trace] * RANKS, system)
        print(f"{name}: {done.makespan / 1e3:.1f} us")


if __name__ == "__main__":
    arguments = [Path(argument) for argument in sys.argv[1:]]
    demo = Path(nadi.__file__).parent / "data" / "demo"
    with TemporaryDirectory() as folder:
        main(*(arguments or [demo, Path(folder)]))
