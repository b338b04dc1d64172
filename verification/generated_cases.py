"""The cases that ``nadi generate cases`` writes, against those of Chakra's own generator.

Usage: python verification/generated_cases.py [FOLDER]

The folder has what ``chakra_generator --num_npus 2`` wrote: ``CASE.<rank>.et``, by default in
``golden/chakra/generator_npus2``. Each is compared with Nadi's case of the same name, node by node:
name, type, duration, data dependencies and every attribute that Chakra's node has. Nadi's nodes
state more (``category``, the rank in the metadata); that is no difference.

Known differences have a name: Chakra's ids go on counting from rank to rank, so that they are
compared after the first of a file is taken off; its sends and receives state only a
``tensor_size``, which Nadi's state as ``comm_size``, with the ranks and a tag; and they are the
only node of every rank, where Nadi's rank 0 has the other end of each.

What is compared was read by the protobuf package, as ``tests/reference`` does it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from _report import Checks, Tally, arguments

import nadi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.reference.chakra_messages import read_messages

DEFAULT = "golden/chakra/generator_npus2"
MESSAGES = ("one_comm_send_node", "one_comm_recv_node")
SIZE_RULE = "tensor_size of a message is comm_size, with ranks and a tag"
OTHER_END_RULE = "rank 0 has the other end of each message"
NUM_CASES = 14


def nodes_of(path: Path) -> list[dict[str, Any]]:
    """Give what a file's nodes state; ids and dependencies counted from its first id."""
    _, nodes = read_messages(path.read_bytes())
    first = min(node.id for node in nodes)
    return [
        {
            "id": node.id - first,
            "name": node.name,
            "type": node.type,
            "duration": node.duration_micros,
            "data": [one - first for one in node.data_deps],
            "ctrl": [one - first for one in node.ctrl_deps],
            "attributes": {one.name: one.SerializeToString() for one in node.attr},
        }
        for node in nodes
    ]


def compare_case(name: str, theirs: list[dict[str, Any]], ours: list[dict[str, Any]],
                 tally: Tally) -> None:  # fmt: skip
    """Compare the nodes of one rank, field by field."""
    if len(theirs) != len(ours):
        tally.add(detail=f"{name}: {len(ours)} nodes instead of {len(theirs)}")
        return
    for one, other in zip(theirs, ours, strict=True):
        for key in ("id", "name", "type", "duration", "data", "ctrl"):
            detail = f"{name}: {key} is {other[key]!r} instead of {one[key]!r}"
            tally.add(exact=one[key] == other[key], detail=detail)
        for key, value in one["attributes"].items():
            rule = ""
            if name in MESSAGES and key == "tensor_size":
                stated = {"comm_size", "comm_src", "comm_dst", "comm_tag"}
                rule = SIZE_RULE if stated <= set(other["attributes"]) else ""
            detail = f"{name}: {key} is {other['attributes'].get(key)!r} instead of {value!r}"
            tally.add(exact=other["attributes"].get(key) == value, rule=rule, detail=detail)


def main() -> None:
    (folder,) = arguments(DEFAULT)
    checks = Checks()
    ranks = sorted({int(path.suffixes[0][1:]) for path in folder.glob("*.et")})
    names = sorted({path.name.split(".")[0] for path in folder.glob("*.et")})
    checks.add("kinds of cases that chakra_generator wrote", len(names) == NUM_CASES)
    with tempfile.TemporaryDirectory() as place:
        found = nadi.models.cases(place, len(ranks))
        checks.add_many("cases of the same name", len(set(names) & set(found)), len(names))
        for name in (one for one in names if one in found):
            tally = Tally()
            for rank in ranks:
                theirs = nodes_of(folder / f"{name}.{rank}.et")
                ours = nodes_of(found[name].traces[rank])
                if name in MESSAGES and rank == 0:
                    tally.add(rule=OTHER_END_RULE if ours[0]["type"] != theirs[0]["type"] else "")
                    continue
                compare_case(name, theirs, ours, tally)
            checks.add_tally(name, tally)
    checks.finish()


if __name__ == "__main__":
    main()
