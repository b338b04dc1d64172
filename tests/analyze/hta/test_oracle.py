"""Graph and path are those of a plain Python reading of the rules, on recordings made at random."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import nadi
from nadi.analyses.hta.hta_path import clip_events
from nadi.analyses.hta.recorded_fields import parse_events
from tests.amounts import ALL
from tests.analyze.hta.recording import Recording
from tests.reference import hta as reference


def random_recording(folder: Path, seed: int) -> Recording:
    """Write two threads and two streams, in few different times so that many are equal."""
    draw = Random(seed)
    record = Recording(folder)
    correlation = 0
    free = {7: 0, 8: 0}
    records: list[int] = []
    for tid in (1, 2):
        now = draw.randrange(4)
        # in the shortest ones the first event is a call, work or a wait of its own
        for _ in range(draw.randrange(3, 12) if seed < 150 else draw.randrange(1, 4)):
            now += draw.randrange(4)
            correlation += 1
            kind = draw.randrange(8)
            duration = draw.randrange(1, 5)
            if kind < 2:  # which may cut others: recordings have such operations too
                record.op(f"op{correlation}", now, draw.randrange(1, 15), tid=tid)
            elif kind == 2:
                record.mark(f"label{correlation}", now, draw.randrange(1, 15), tid=tid)
            elif kind < 6:
                name = draw.choice(["cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"])
                stream = draw.choice([7, 8])
                begin = max(free[stream], now + draw.randrange(6))
                begin += 2000 * (draw.randrange(15) == 0)
                length = draw.randrange(1, 12)
                free[stream] = begin + length + draw.randrange(3)
                record.call(name, now, duration, correlation, tid=tid)
                record.kernel(f"k{correlation}", begin, length, correlation, stream)
                now += duration
            elif kind == 6:
                record.call("cudaEventRecord", now, duration, correlation, tid=tid)
                records.append(correlation)
                now += duration
            else:
                now += synchronize(record, draw, now, correlation, records, tid)
    return record


def synchronize(
    record: Recording, draw: Random, now: int, correlation: int, records: list[int], tid: int
) -> int:
    """Write a call that waits, and what it waits for; gives how long it takes."""
    call, name = draw.choice([
        ("cudaDeviceSynchronize", "Context Sync"), ("cudaStreamSynchronize", "Stream Sync"),
        ("cudaEventSynchronize", "Event Sync"), ("cudaStreamWaitEvent", "Stream Wait Event"),
    ])  # fmt: skip
    duration = draw.randrange(1, 20)
    record.call(call, now, duration, correlation, tid=tid)
    event = {}
    stream = -1 if name in ("Context Sync", "Event Sync") else draw.choice([7, 8])
    if "Event" in name and records:
        event = {"wait_on_stream": 15 - stream if stream > 0 else 7,
                 "wait_on_cuda_event_record_corr_id": draw.choice(records)}  # fmt: skip
    record.sync(name, now + 1, duration, correlation, stream=stream, **event)
    return duration


@pytest.mark.parametrize("seed", range(300 if ALL else 100))
def test_as_the_rules_are_read(tmp_path: Path, seed: int) -> None:
    record = random_recording(tmp_path, seed)
    if seed % 3 == 0:  # a file's order is not that of time
        Random(seed).shuffle(record.events)
        # HTA takes a partner at place 0 for none: what waits or was launched stands elsewhere
        record.events.sort(key=lambda event: event["cat"] in ("kernel", "cuda_sync"))
    trace = record.read()
    zero_weight = seed % 2 == 1
    events = parse_events([trace], 0)
    every, clipped = events.to_dicts(), clip_events(events, "", 0).to_dicts()
    expected = reference.build(clipped, every, zero_weight=zero_weight)
    has_answer = any(reference.launches(every)) and not reference.has_cycle(expected)
    if not has_answer:
        with pytest.raises(nadi.errors.InputError, match=r"no launched|dependency cycle"):
            nadi.analyses.hta_critical_path(trace, zero_weight_launch_edges=zero_weight)
        return
    found = nadi.analyses.hta_critical_path(trace, zero_weight_launch_edges=zero_weight)
    nodes = list(zip(found.nodes["ev_idx"], ~found.nodes["is_start"], strict=True))
    assert nodes == expected.order
    edges = [
        ((nodes[begin], nodes[end]), (kind, round(weight * 1000), event))
        for begin, end, kind, weight, event in found.edges.select(
            "begin", "end", "type", "edge_weight", "attributed_event"
        ).iter_rows()
    ]
    assert edges == list(expected.edges.items())
    assert [nodes[node] for node in found.path["node"]] == reference.longest(expected)
