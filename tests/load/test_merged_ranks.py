"""Ranks that were merged into one file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.recordings.job_of_files import load_devices, load_job

Event = dict[str, Any]


def as_they_are(event: Event, rank: int) -> None:
    """Join the lists of events, as a script of PyTorch does."""


def with_text(event: Event, rank: int) -> None:
    """Write the rank before process ids, as SGLang's merger does."""
    if "pid" in event:
        event["pid"] = f"[TP{rank:02d}] {event['pid']}"


def with_offsets(event: Event, rank: int) -> None:
    """Add numbers to ids, and state the rank, as TraceLens does."""
    event.setdefault("args", {})["rank"] = rank
    for place, key in ((event, "pid"), (event["args"], "correlation")):
        if isinstance(place.get(key), int):
            place[key] += 10**8 * rank


def merged(file: Path, ranks: list[dict[str, Any]], change: Callable[[Event, int], None]) -> Path:
    events = []
    for rank, content in enumerate(ranks):
        for event in content["traceEvents"]:
            change(event, rank)
            events.append(event)
    file.write_text(json.dumps({**ranks[0], "traceEvents": events}))
    return file


@pytest.mark.parametrize("change", [as_they_are, with_text, with_offsets])
def test_ranks_of_a_recording(
    change: Callable[[Event, int], None], demo_folder: Path, tmp_path: Path
) -> None:
    files = sorted(demo_folder.glob("device_*.json.gz"))
    contents = [json.loads(gzip.decompress(file.read_bytes())) for file in files]
    job = load_job(merged(tmp_path / "merged.json", contents, change))
    assert job.ranks == (0, 1, 2, 3)
    assert job.num_collectives == 20  # what groups of other ranks there are stands in their files
    for trace, file in zip(job.traces, files, strict=True):
        own = nadi.recordings.link_device(nadi.read(file))
        for column in ("name", "start", "duration", "thread"):
            assert trace.nodes[column].cast(str).equals(own.nodes[column].cast(str))


def rank_on_device(process: int, device: int, begin: float) -> dict[str, Any]:
    """Return a rank with ten kernels, and the correlation ids that all ranks have."""
    events: list[Event] = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": process, "tid": 1, "ts": begin,
         "dur": 100, "args": {}},
    ]  # fmt: skip
    for number in range(1, 11):
        at = begin + 10 * number
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": process, "tid": 1,
             "ts": at, "dur": 1, "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": f"kernel of {process}", "pid": device, "tid": 7,
             "ts": at + 3, "dur": 2, "args": {"correlation": number, "device": device,
                                              "stream": 7}},
        ]  # fmt: skip
    return {"traceEvents": events}


def test_a_device_belongs_to_the_process_that_launched_its_work(tmp_path: Path) -> None:
    # process 90 has device 1, though its process id is the smaller one
    ranks = [rank_on_device(91, 0, 5), rank_on_device(90, 1, 0)]
    traces = load_devices(merged(tmp_path / "merged.json", ranks, as_they_are))
    for trace, process in zip(traces, (90, 91), strict=True):
        kernels = trace.nodes.filter(category="kernel")
        assert kernels["name"].cast(str).unique().to_list() == [f"kernel of {process}"]
        assert kernels.height == 10


def test_work_of_two_processes_on_one_device_id_stays_one_trace(tmp_path: Path) -> None:
    file = merged(
        tmp_path / "merged.json", [rank_on_device(91, 0, 5), rank_on_device(90, 0, 0)], as_they_are
    )
    (trace,) = load_devices(file)
    (issue,) = trace.issues.filter(code="kineto.merged-ranks").to_dicts()
    assert (issue["severity"], issue["count"]) == ("warning", 2)


def test_one_process_is_no_merged_file(tmp_path: Path) -> None:
    file = merged(tmp_path / "one.json", [rank_on_device(91, 0, 5)], with_text)
    assert nadi.read(file).issues.filter(code="kineto.merged-ranks").is_empty()
    assert len(load_devices(file)) == 1
