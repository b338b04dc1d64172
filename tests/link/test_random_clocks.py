"""Clocks of devices in random recordings, against a slow reading of the rules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np

from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.recordings.join_host_device import DeviceClock, align_device, bound_device_clocks
from nadi.trace.issues import IssueLog
from nadi.units import format_ns
from tests.amounts import ALL, examples
from tests.link.test_random_waits import Slow, recording


def slow_shift(late: list[int], early: list[int]) -> int:
    """Give the least correction: that of a wait first, then that of launches, if not too rare."""
    if not early:
        return 0
    low = max((x for x in late if x <= min(early)), default=0)
    if low > 0:
        return -low
    high = min((x for x in early if x >= max(late, default=x)), default=0)
    share = sum(x < 0 for x in early) / len(early)
    return -high if high < 0 and share >= 0.01 else 0


def test_the_shift_of_any_bounds() -> None:
    rng = Random(1)
    shifts = []
    for _ in range(400):
        late = sorted(rng.randint(-6, 6) for _ in range(rng.choice((0, 1, 1, 2, 5))))
        early = [rng.randint(-6, 6) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
        early = sorted(early + [7] * rng.choice((0, 0, 98, 99, 100)))
        found = DeviceClock(0, np.array(late, np.int64), np.array(early, np.int64)).shift
        assert found == slow_shift(late, early), (late, early)
        shifts.append(found)
    assert {-6, -1, 0, 1, 5} <= set(shifts)


def slow_bounds(slow: Slow, device: list[int]) -> list[tuple[int, list[int], list[int]]]:
    """Give by how much work is late for what waits for it, and early for what launches it."""
    launched = [row for row in slow.rows if slow.launcher[row] >= 0]
    devices = sorted({device[row] for row in launched})
    found = []
    for one in devices:
        mine = [row for row in launched if device[row] == one]
        late = [
            slow.end[row] - slow.end[slow.launcher[row]] for row in mine
            if "-> Pageable" in slow.name[row]
        ]  # fmt: skip
        if len(devices) == 1:
            late += [slow.end[row] - slow.end[call] for row, call in slow.device_syncs()]
            late += after_copies(slow, launched)
        early = [slow.start[row] - slow.start[slow.launcher[row]] for row in mine]
        found.append((one, sorted(late), sorted(early)))
    return found


def after_copies(slow: Slow, launched: list[int]) -> list[int]:
    found = []
    for call in slow.calls("cudaStreamSynchronize"):
        before = [
            (slow.launcher[row], row) for row in launched
            if slow.launcher[row] < call and slow.thread[slow.launcher[row]] == slow.thread[call]
        ]  # fmt: skip
        if before and "DtoH" in slow.name[row := max(before)[1]]:
            found.append(slow.end[row] - slow.end[call])
    return found


def test_bounds_and_corrections_of_random_recordings(tmp_path: Path) -> None:
    moved: dict[str, int] = Counter()
    for seed in range(examples(120)):
        rng = Random(seed)
        ahead = (rng.choice((-25, -3, 0, 0, 30)), rng.choice((0, -10, 40)))
        trace = recording(tmp_path, seed, ahead)
        slow, launcher, log = Slow(trace), launcher_rows(trace), IssueLog()
        device = trace.nodes["device"].to_list()
        expected = slow_bounds(slow, device)
        found = bound_device_clocks(trace, launcher)
        assert [(c.device, c.late.tolist(), c.early.tolist()) for c in found] == expected, seed
        shift = {one: slow_shift(late, early) for one, late, early in expected}
        aligned, callers = align_device(trace, log)
        # events stay the same, and are sorted anew by their times
        start = [
            begin + (shift.get(device[row], 0) if slow.category[row] not in ("runtime",) else 0)
            for row, begin in enumerate(slow.start)
        ]
        event = trace.nodes["event"].to_list()
        new_row = {event: row for row, event in enumerate(aligned.nodes["event"].to_list())}
        assert [aligned.nodes["start"][new_row[e]] for e in event] == start, seed
        assert aligned.nodes["start"].is_sorted()
        assert [callers[new_row[e]] for e in event] == [
            new_row[event[call]] if call >= 0 else -1 for call in slow.launcher
        ]
        told = dict(log.table().select("detail", "count").iter_rows())
        assert len(told) == sum(by != 0 for by in shift.values())
        for one, by in shift.items():
            text = f"events of device {one} are moved {format_ns(abs(by))} "
            (count,) = [n for detail, n in told.items() if detail.startswith(text)] or [0]
            assert count == (by != 0) * sum(number == one for number in device)
            moved["earlier"] += by < 0
            moved["later"] += by > 0
            way = " earlier:" if by < 0 else " later:"
            assert all(way in detail for detail in told if detail.startswith(text))
    assert not ALL or min(moved.values()) > 3, moved
