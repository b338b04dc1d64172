"""A host trace of later steps: matched step by step, by names, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nadi
from tests.conftest import PairWriter

LATER = {"nadi": {"host_trace": "of later steps", "timed_ns": [9], "unrecorded_ns": [8, 7]}}


def two(folder: Path, timed: list[str], later: list[str], **keys: Any) -> nadi.Trace:
    """Link steps of operators, one letter each, with later steps of the same process."""
    first, second = (PairWriter(folder / name) for name in ("timed", "later"))
    for pair, steps, number in ((first, timed, 1), (second, later, 1 + len(timed))):
        pair.folder.mkdir()
        pair.device_keys.update(LATER | keys)
        ts = 0
        for at, step in enumerate(steps):
            name = f"ProfilerStep#{number + at}"
            mark = pair.op(name, ts, 10 * len(step) + 5, cat="user_annotation")
            pair.nodes[-1]["attrs"].append({"name": "scope", "type": "uint64", "value": 7})
            for letter in step:
                pair.op(letter, ts + 1, 5, parent=mark)
                ts += 10
            ts += 10
    for node in second.nodes[1:]:  # ids of a process are counted on
        node["attrs"][0]["value"] += 1_000
    return nadi.link_pair(nadi.read(second.write()[0]), nadi.read(first.write()[1]))


def partners(trace: nadi.Trace) -> list[tuple[str, int]]:
    """Return the timed operations, and the id they have."""
    timed = trace.nodes.filter(trace.nodes["start"] >= 0)
    return list(zip(timed["name"].cast(str).to_list(), timed["id"].to_list(), strict=True))


def test_steps_and_operators_are_paired_in_order(tmp_path: Path) -> None:
    found = partners(two(tmp_path, ["abc", "abc"], ["abc", "abc"]))
    assert found == [
        ("ProfilerStep#1", 2), ("a", 3), ("b", 4), ("c", 5),
        ("ProfilerStep#2", 6), ("a", 7), ("b", 8), ("c", 9),
    ]  # fmt: skip


def test_the_step_with_the_most_in_common_is_the_partner(tmp_path: Path) -> None:
    trace = two(tmp_path, ["xyz", "abcd"], ["abd", "xyz"])
    ids = dict(partners(trace))
    assert [ids[name] for name in "xyz"] == [7, 8, 9]
    assert [ids[name] for name in "abd"] == [3, 4, 5]
    assert ids["c"] > 9  # in no host trace
    counts = {one["code"]: one["count"] for one in trace.issues.rows(named=True)}
    assert counts["link.device-only"] == 1
    assert counts["link.later-steps"] == 1
    assert "link.forced" not in counts


def test_what_a_step_asks_for_comes_before_what_the_next_one_does(tmp_path: Path) -> None:
    """Ranks match their collectives in this order, also if steps have partners in another one."""
    trace = two(tmp_path, ["xyz", "abcd", "ab"], ["abd", "ab", "xyz"])
    timed = trace.nodes.filter((trace.nodes["start"] >= 0) & (trace.nodes["rf_id"] > 0))
    assert "".join(timed["name"].cast(str).str.strip_prefix("ProfilerStep")) == "#1xyz#2abd#3ab"
    assert timed["rf_id"].is_sorted()
    assert timed["rf_id"].is_unique().all()
    assert [dict(partners(trace))[name] for name in "xyz"] == [10, 11, 12]


def test_another_process_is_refused(tmp_path: Path) -> None:
    first, second = (PairWriter(tmp_path / name) for name in "ab")
    for pair in (first, second):
        pair.folder.mkdir()
        pair.device_keys.update(LATER)
        pair.op("a", 0, 5)
    host, device = second.write()[0], first.write()[1]
    host.write_text(host.read_text().replace('"pid": 7', '"pid": 8'))
    with pytest.raises(nadi.errors.PairError, match="of processes 8 and 7"):
        nadi.link_pair(nadi.read(host), nadi.read(device))


@pytest.mark.parametrize(("unrecorded", "codes"), [
    (8, []), (7, ["job.recording-cost"]), (17, []), (19, ["job.unlike-steps"]),
])  # fmt: skip
def test_steps_that_take_another_time_than_others_are_warned_of(
    tmp_path: Path, unrecorded: int, codes: list[str]
) -> None:
    lengths = LATER["nadi"] | {"unrecorded_ns": [unrecorded]}
    two(tmp_path, ["a"], ["a"], nadi=lengths)
    job = nadi.load_job(tmp_path / "later" / "host.json", tmp_path / "timed" / "device.json")
    assert [code for code in job.issues["code"] if code.startswith("job.")] == codes


def test_lengths_of_steps_are_read_and_kept(tmp_path: Path) -> None:
    trace = two(tmp_path, ["a"], ["a"])
    assert trace.step_lengths is not None
    assert trace.step_lengths.cost == 1.5 / 7.5
    nadi.write(trace, tmp_path / "kept.nadi")
    assert nadi.read(tmp_path / "kept.nadi").step_lengths == trace.step_lengths
