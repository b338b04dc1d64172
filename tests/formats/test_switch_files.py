"""Files of switches: the text of perf and ftrace, and Perfetto's packets."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.files.switches import SWITCH, WAKEUP, SwitchEvents, is_switches, read_switches
from nadi.trace.protobuf_values import write_varint

PERF = """
  python  4135 [029]  10.000001: sched:sched_waking: comm=my worker pid=4129 prio=120 target_cpu=082
  python  4135/4136 [029] 10.000001500:  sched:sched_wakeup: comm=my worker pid=4129 prio=120
  python  4135 [029]  10.000002: sched:sched_switch: prev_comm=python prev_pid=4135 prev_prio=120 \
prev_state=S ==> next_comm=swapper/9 next_pid=0 next_prio=120
 swapper     0 [000]  10.000003: sched:sched_switch: swapper/0:0 [120] R ==> my worker:4129 [120]
 swapper     0 [000]  10.000004: sched:sched_stat_runtime: comm=perf pid=1 runtime=4050 [ns]
"""
FTRACE = """
# tracer: nop
     <idle>-0     [007] d.h.   5.000100: sched_waking: comm=a pid=5 prio=9 target_cpu=007
     <idle>-0     [007] d.s3   5.000200: softirq_entry: vec=3 [action=NET_RX]
     <idle>-0     [007] d.s3   5.000300: sched_waking: comm=a pid=5 prio=9 target_cpu=007
     <idle>-0     [007] d.s3   5.000400: softirq_exit: vec=3 [action=NET_RX]
  b-c-2931 (  12) [013] dN..   5.000500: sched_waking: comm=a pid=5 prio=9 target_cpu=013
  b-c-2931-2932   [013] d..2.  5.000600: sched_switch: prev_comm=b prev_pid=2932 prev_prio=1 \
prev_state=R+ ==> next_comm=a next_pid=5 next_prio=120
"""


def saved(folder: Path, content: str | bytes, name: str = "s.txt") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(events: SwitchEvents) -> list[tuple[int, ...]]:
    columns = (events.kind, events.time, events.before, events.after, events.cause, events.stays)
    return [tuple(map(int, row)) for row in zip(*columns, strict=True)]


def test_text_of_perf(tmp_path: Path) -> None:
    events = read_switches(saved(tmp_path, gzip.compress(PERF.encode())))
    assert rows(events) == [
        (WAKEUP, 10_000_001_000, 4135, 4129, 0, 0),
        (SWITCH, 10_000_002_000, 4135, 0, 0, 0),
        (SWITCH, 10_000_003_000, 0, 4129, 0, 1),
    ]
    assert events.names[4129] == "my worker"


def test_text_of_ftrace_says_which_interrupt_woke(tmp_path: Path) -> None:
    events = read_switches(saved(tmp_path, FTRACE))
    assert events.cause[events.kind == WAKEUP].tolist() == [-1, -4, 0]
    assert events.before.tolist() == [0, 0, 2931, 2932]
    assert events.stays.tolist()[-1]


def number(value: int) -> bytes:
    return bytes(write_varint(value if value >= 0 else value + (1 << 64)))


def field(at: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(at << 3) + number(value)
    return number(at << 3 | 2) + number(len(value)) + value


def packed(*values: int) -> bytes:
    return b"".join(map(number, values))


def trace(*bundle: bytes) -> bytes:
    return field(1, field(1, b"".join(bundle)))


def test_perfetto_events(tmp_path: Path) -> None:
    waking = field(1, b"w") + field(2, 7)
    switch = field(1, b"p") + field(2, 3) + field(4, 1) + field(5, b"w") + field(6, 7)
    content = trace(
        field(2, field(1, 100) + field(2, 3) + field(20, waking)),
        field(2, field(1, 200) + field(2, 3) + field(4, switch)),
        field(2, field(1, 300) + field(2, 0) + field(24, field(1, 3))),
        field(2, field(1, 310) + field(2, 0) + field(20, waking)),
    )
    path = saved(tmp_path, content, "x.pftrace")
    assert is_switches(path)
    events = read_switches(path)
    assert rows(events) == [
        (WAKEUP, 100, 3, 7, 0, 0), (SWITCH, 200, 3, 7, 0, 0), (WAKEUP, 310, 0, 7, -4, 0),
    ]  # fmt: skip
    assert events.names == {3: "p", 7: "w"}


def test_compact_perfetto_events(tmp_path: Path) -> None:
    compact = (
        field(5, b"idle") + field(5, b"w")
        + field(1, packed(100, 50, 50)) + field(2, packed(0, 0, 1)) + field(3, packed(0, 7, 0))
        + field(4, packed(1, 1, 1)) + field(6, packed(0, 1, 0))
        + field(7, packed(140, 30)) + field(8, packed(7, 9)) + field(11, packed(1, 1))
        + field(12, packed(8, 0))
    )  # fmt: skip
    events = read_switches(saved(tmp_path, trace(field(4, compact)), "x"))
    assert rows(events) == [
        (WAKEUP, 140, 0, 7, -1, 0), (SWITCH, 150, 0, 7, 0, 1), (WAKEUP, 170, 7, 9, 0, 0),
        (SWITCH, 200, 7, 0, 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(("content", "what"), [
    (b"no events here", "no line is an event"),
    (trace(field(2, field(1, 5))), "has no events of the scheduler"),
    (trace(field(2, field(1, 100)))[:-1], "cut off"),
    ("x 1 [000] 1.0: sched_switch: what is this", "line 1: sched_switch has fields"),
])  # fmt: skip
def test_broken_files(tmp_path: Path, content: bytes | str, what: str) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(nadi.errors.FormatError, match=what):
        read_switches(path)


def test_json_is_no_perfetto_trace(tmp_path: Path) -> None:
    assert not is_switches(saved(tmp_path, '\n{"traceEvents": []}'))
    assert not is_switches(tmp_path)


def test_threads_are_renamed_in_the_command(tmp_path: Path) -> None:
    found = nadi.bottlenecks.waits(saved(tmp_path, PERF))
    assert found.window is None
    assert "my worker (4129)" in [actor.name for actor in found.graph.timelines.actors]
    assert np.all(found.graph.weight >= 0)
