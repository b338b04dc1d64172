"""Compare the operations behind the events of a device trace with HTA's, and with the files'.

    python verification/hta_correlate.py [FOLDER_WITH_A_PAIR ...]

HTA answered on the small pair: every row to which it gave a node of the host trace must be equal
to the letter, and no other event of the host may have one. (HTA gives work of a device none.)
For each pair the same is worked out from the two files alone. An operator or annotation is the
host node with its record function id, which older files give as External id. Device work belongs
to the innermost operator, else annotation, around the call with its correlation.
"""

from __future__ import annotations

import ast
import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _report import SHARED, Checks, Tally

import nadi

GOLDEN = SHARED / "golden" / "hta" / "execution_trace" / "et_correlation.csv"
SMALL = SHARED / "traces" / "gpu_simple_add_pair"
DEFAULTS = [SMALL, SHARED / "traces" / "gpu_resnet_pair"]
_TEXTS = ("input_shapes", "input_types", "output_shapes", "output_types")
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def main() -> None:
    """Compare all pairs."""
    checks = Checks()
    given = [Path(argument) for argument in sys.argv[1:]]
    if not given:
        compare_with_hta(checks)
    for folder in given or DEFAULTS:
        compare_with_files(checks, folder)
    checks.finish()


def rows_of(folder: Path) -> dict[int, dict[str, Any]]:
    """Give what Nadi says of each event of a pair."""
    host, device = (nadi.read(folder / f"{side}.json.gz") for side in ("host", "device"))
    frame = nadi.link_pair(host, device).device_frame()
    return {row["event"]: row for row in frame.iter_rows(named=True)}


def compare_with_hta(checks: Checks) -> None:
    """Compare with the rows that HTA gave."""
    mine, known, unknown = rows_of(SMALL), Tally(), Tally()
    with GOLDEN.open() as file:
        for row in csv.DictReader(file):
            found = mine[int(row["index"])]
            if row["et_node"]:
                texts = {name: ast.literal_eval(row[name]) for name in _TEXTS}
                expected = (float(row["et_node"]), row["et_node_name"], row["op_schema"], texts)
                known.add(exact=_answer(found) == expected, detail=f"{row['index']}: {expected}")
            elif row["cat"] not in _WORK:
                unknown.add(exact=found["et_node"] == -1, detail=f"{row['index']}: has one")
    checks.add_tally(f"{SMALL.name}, rows with a node of the host trace by HTA", known)
    checks.add_tally(f"{SMALL.name}, events of the host without one", unknown)


def _answer(found: dict[str, Any]) -> tuple[Any, ...]:
    texts = {name: json.loads(found[name] or "null") for name in _TEXTS}
    return found["et_node"], found["et_node_name"], found["op_schema"], texts


def compare_with_files(checks: Checks, folder: Path) -> None:
    """Compare with what follows from the two files."""
    mine = rows_of(folder)
    nodes = {_rf_id(node): node for node in _load(folder / "host.json.gz")["nodes"]}
    events = _load(folder / "device.json.gz")["traceEvents"]
    key = "External id"
    if any("Record function id" in event.get("args", {}) for event in events):
        key = "Record function id"
    around = _callers(events)
    operations, work = Tally(), Tally()
    for index, event in enumerate(events):
        if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "user_annotation"):
            expected = _expected(nodes, event, key)
            operations.add(exact=_answer(mine[index]) == expected, detail=f"{index}: {expected}")
        elif event.get("cat") in _WORK:
            caller = around.get(event["args"]["correlation"])
            expected = _expected(nodes, caller, key)
            work.add(exact=_answer(mine[index]) == expected, detail=f"{index}: {expected}")
    checks.add_tally(f"{folder.name}, operators and annotations by the files", operations)
    checks.add_tally(f"{folder.name}, device work by the files", work)


def _load(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def _attribute(node: dict[str, Any], name: str) -> Any:
    if name in node:
        return node[name]
    return next((a["value"] for a in node.get("attrs", []) if a["name"] == name), None)


def _rf_id(node: dict[str, Any]) -> Any:
    return _attribute(node, "rf_id")


def _expected(nodes: dict[Any, Any], event: dict[str, Any] | None, key: str) -> tuple[Any, ...]:
    """Give the answer for an operation of the host; that of none if the host does not know it."""
    node = nodes.get(event["args"].get(key)) if event is not None else None
    if event is None or node is None or node["name"] != event["name"]:
        return (-1, "", "", dict.fromkeys(_TEXTS))
    texts = {}
    for side in ("input", "output"):
        for what in ("shapes", "types"):
            name = f"{side}_{what}"
            texts[name] = node[name] if name in node else node[f"{side}s"][what]
    return node["id"], node["name"], _attribute(node, "op_schema"), texts


def _callers(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Give the operation around each call that may launch something, by correlation."""
    spans = {
        category: [e for e in events if e.get("ph") == "X" and e.get("cat") == category]
        for category in ("cpu_op", "user_annotation")
    }
    times = {
        category: np.array([(e["ts"], e["ts"] + e["dur"], e["tid"]) for e in found]).reshape(-1, 3)
        for category, found in spans.items()
    }
    around = {}
    for call in events:
        if call.get("ph") != "X" or call.get("cat") not in ("cuda_runtime", "cuda_driver"):
            continue
        for category, span in times.items():
            fits = (span[:, 0] <= call["ts"]) & (call["ts"] < span[:, 1])
            open_ = np.flatnonzero(fits & (span[:, 2] == call["tid"]))
            if open_.size:
                around[call["args"]["correlation"]] = spans[category][
                    max(open_, key=lambda k: (span[k, 0], -span[k, 1]))
                ]
                break
    return around


if __name__ == "__main__":
    main()
