"""What calls and streams wait for in random recordings, against a slow reading of the rules."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import nadi
from nadi.recordings.dependencies.device_calls import device_calls, launcher_rows, stream_work
from nadi.recordings.dependencies.synchronization import synchronization
from nadi.trace.categories import STAGED_COPY_BYTES
from nadi.trace.issues import IssueLog
from tests.amounts import ALL, examples
from tests.conftest import PairWriter

Key = tuple[int, int]  # device and stream
NO_STREAM = (-1, -1)
COPIES = ("Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)",
          "Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pinned -> Device)")  # fmt: skip
SYNCS = {"cudaStreamSynchronize": "Stream Sync", "cudaEventSynchronize": "Event Sync",
         "cudaStreamWaitEvent": "Stream Wait Event"}  # fmt: skip
US = 1_000


def recording(folder: Path, seed: int, ahead: tuple[int, int] = (0, 0)) -> nadi.Trace:
    """Write calls of two threads, and the work of up to four streams; whole us, so many tie.

    The clocks of both devices are ``ahead`` of the host's, us.
    """
    rng = Random(seed)
    pair = PairWriter(folder)
    streams = rng.sample([(0, 7), (0, 0), (0, 8), (1, 7)], rng.randint(1, 4))
    is_stated = rng.random() < 0.6
    of_all = ("launch", "launch", "launch", "copy", "record", "wait", "wait", "sync", "device")
    of_events = ("launch", "record", "wait")  # streams that wait for each other in a row
    is_stated |= seed % 3 == 0
    free = dict.fromkeys(streams, 0)
    records: list[int] = []
    now = {1: 0, 2: 0}
    if rng.random() < 0.3:
        pair.event(
            "early",
            rng.choice((0, 0, 5, 12)),
            rng.randint(1, 40),
            "kernel",
            pid=0,
            tid=7,
            stream=7,
            device=0,
        )
    for number in range(1, rng.randint(3, 26)):
        tid = rng.choice((1, 1, 1, 2))
        begin = now[tid] = now[tid] + rng.randint(1, 4)
        what = rng.choice(of_events if seed % 3 == 0 else of_all)
        duration = rng.choice((1, 1, 2, 5, 21, 22, 40, 71))
        args: dict[str, Any] = {"correlation": number, "tid": tid}
        if what in ("launch", "copy"):
            duration = rng.choice((1, 2, 5, 30))
            call = (
                rng.choice(("cudaMemcpyAsync", "cudaMemcpy"))
                if what == "copy"
                else "cudaLaunchKernel"
            )
            pair.event(call, begin, duration, "cuda_runtime", **args)
            device, stream = key = rng.choice(streams)
            start = max(free[key], begin + rng.choice((0, 1, 2, 3, 4, duration + 3, duration + 4)))
            others = [end for end in free.values() if end >= start]
            if others and rng.random() < 0.5:  # held by other work
                start = rng.choice(others) + rng.choice((0, 0, 1, 10, 11))
            start += rng.choice((0, 0, 3, 4))
            end = start + rng.choice((1, 5, 20, 60))
            free[key] = end
            pair.event(rng.choice(COPIES) if what == "copy" else f"k{number}", start, end - start,
                       "gpu_memcpy" if what == "copy" else "kernel", pid=device, tid=stream,
                       stream=stream, device=device, correlation=number,
                       bytes=STAGED_COPY_BYTES + rng.randint(0, 1))  # fmt: skip
        elif what == "record":
            pair.event("cudaEventRecord", begin, duration := 1, "cuda_runtime", **args)
            records.append(number)
        elif what == "device":
            pair.event("cudaDeviceSynchronize", begin, duration, "cuda_runtime", **args)
        else:
            name = "cudaStreamWaitEvent" if what == "wait" else rng.choice(list(SYNCS)[:2])
            if rng.random() < 0.5:  # it returns at or soon after the end of some work
                end = rng.choice(list(free.values())) + rng.choice((0, 1, 20, 21, 50, 51))
                duration = max(end - begin, duration)
            pair.event(name, begin, duration, "cuda_runtime", **args)
            if is_stated and rng.random() < 0.8:
                say(pair, rng, SYNCS[name], (begin, number), rng.choice(streams), records)
        now[tid] += duration
    for event in pair.events:
        if event["cat"] in ("kernel", "gpu_memcpy"):
            event["ts"] += ahead[event["pid"]]
    return nadi.read(pair.write()[1])


def say(
    pair: PairWriter, rng: Random, name: str, call: tuple[int, int], key: Key, records: list[int]
) -> None:
    """State what a call waits for."""
    device, stream = key
    args: dict[str, Any] = {"device": device, "correlation": call[1], "stream": stream}
    if name == "Event Sync":
        args["stream"] = -1
    if name != "Stream Sync":
        args["wait_on_stream"] = rng.choice((stream, 7, 8, 0, 7, 8, 0, -1))
        record = rng.choice((*records, 900, 0)) if records else -1
        args["wait_on_cuda_event_record_corr_id"] = record
    pair.event(name, call[0], 1, "cuda_sync", pid=device, tid=stream, **args)


class Slow:
    """The rules, call by call."""

    def __init__(self, trace: nadi.Trace) -> None:
        nodes = trace.nodes
        self.name = nodes["name"].cast(str).to_list()
        self.category = nodes["category"].cast(str).to_list()
        self.start = nodes["start"].to_list()
        self.end = (nodes["start"] + nodes["duration"]).to_list()
        self.thread = nodes["thread"].to_list()
        self.correlation = nodes["correlation"].to_list()
        self.bytes = nodes["bytes"].to_list()
        self.key = [
            (max(device, 0), stream) if stream >= 0 else NO_STREAM
            for device, stream in nodes.select("device", "stream").iter_rows()
        ]
        self.args = [trace.attributes.of(row).get("args", {}) for row in range(nodes.height)]
        self.rows = range(nodes.height)
        self.contradicted = 0
        self.issues: dict[str, int] = Counter()

    def calls(self, name: str) -> list[int]:
        return [r for r in self.rows if self.category[r] == "runtime" and self.name[r] == name]

    @cached_property
    def launcher(self) -> list[int]:
        by_number = {}
        for row in reversed(self.rows):
            if self.category[row] == "runtime" and self.correlation[row] > 0:
                by_number[self.correlation[row]] = row
        return [
            by_number.get(self.correlation[row], -1) if self.on_device(row) else -1
            for row in self.rows
        ]

    def on_device(self, row: int) -> bool:
        return self.category[row] in ("kernel", "memcpy", "memset")

    @cached_property
    def streams(self) -> dict[Key, list[tuple[int, float]]]:
        """Work of each stream in order, each with when all up to it had been launched."""
        found: dict[Key, list[tuple[int, float]]] = {}
        for row in self.rows:
            if self.on_device(row):
                queue = found.setdefault(self.key[row], [])
                call = self.launcher[row]
                launched = self.start[call] if call >= 0 else float("-inf")
                queue.append((row, max([launched, *(t for _, t in queue[-1:])])))
        return dict(sorted(found.items()))

    def last_before(self, key: Key, time: int) -> int:
        """Give the place in the queue of the last work launched before."""
        return sum(launched < time for _, launched in self.streams[key]) - 1

    def last_recorded(self, key: Key, before: int, ended_by: int) -> int:
        """Give the work that an event recorded earlier may stand for, or -1."""
        queue = self.streams[key]
        last = self.last_before(key, before)
        ended = -1
        while ended < last and self.end[queue[ended + 1][0]] <= ended_by:
            ended += 1
        if ended < 0:
            return -1
        if ended < last:
            until = min(queue[ended + 1][1], before)
            records = [self.start[row] for row in self.calls("cudaEventRecord")]
            if not any(queue[ended][1] <= time < until for time in records):
                return -1
        return queue[ended][0]

    @cached_property
    def said(self) -> list[tuple[int, Key, Key, int]]:
        """Correlation, awaited and waiting stream, and record of what refers to an event."""
        found = []
        for row in self.rows:
            if self.category[row] == "sync" and self.name[row] in (
                "Event Sync",
                "Stream Wait Event",
            ):
                args = self.args[row]
                on, record = args.get("wait_on_stream", -1), "wait_on_cuda_event_record_corr_id"
                source = (args["device"], on) if on >= 0 else NO_STREAM
                found.append((self.correlation[row], source, self.key[row], args.get(record, -1)))
        return found

    def said_of(self, call: int) -> tuple[int, Key, Key, int] | None:
        return next((one for one in self.said if one[0] == self.correlation[call]), None)

    def recorded_at(self, record: int, call: int) -> int:
        """Give when the event of a call was recorded, at the latest."""
        rows = [
            row for row in self.rows
            if self.category[row] == "runtime" and self.correlation[row] == record > 0
        ]  # fmt: skip
        return self.start[rows[0]] if rows else self.start[call]

    @cached_property
    def waits(self) -> list[tuple[Key, int, Key, int]]:
        """Stream and time of each stated wait of a stream; stream and time that it waits for."""
        found = []
        for call in self.calls("cudaStreamWaitEvent"):
            one = self.said_of(call)
            if one and NO_STREAM not in one[1:3]:
                recorded = self.recorded_at(one[3], call)
                found.append((one[2], self.start[call], one[1], recorded))
        return found

    def queued(self, key: Key, time: int, seen: frozenset[int] = frozenset()) -> set[int]:
        """Give the last work of a stream before a time, and what the stream waited for since."""
        found, since = set(), float("-inf")
        if key in self.streams and (last := self.last_before(key, time)) >= 0:
            row, since = self.streams[key][last]
            found.add(row)
        for number, (waiting, moment, source, recorded) in enumerate(self.waits):
            if waiting == key and since < moment < time and number not in seen:
                found |= self.queued(source, recorded, seen | {number})
        return found

    def device_syncs(self) -> set[tuple[int, int]]:
        found = set()
        for call in self.calls("cudaDeviceSynchronize"):
            for key, queue in self.streams.items():
                last = self.last_before(key, self.start[call])
                if last >= 0:
                    found.add((queue[last][0], call))
        return found

    def stream_syncs(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Give the waits of stated streams, and of guessed ones."""
        stated, guessed = set(), set()
        for call in self.calls("cudaStreamSynchronize"):
            keys = [
                self.key[row] for row in self.rows
                if self.category[row] == "sync" and self.correlation[row] == self.correlation[call]
                and self.key[row] != NO_STREAM
            ]  # fmt: skip
            if keys:
                stated |= {(row, call) for row in self.queued(keys[0], self.start[call])}
                continue
            key = self.stream_of_last_copy(call)
            if key != NO_STREAM:
                guessed |= {(row, call) for row in self.queued(key, self.start[call])}
                continue
            row = self.nearest_work(call)
            self.issues["link.sync-unknown"] += row < 0
            guessed |= {(row, call)} - {(-1, call)}
        return stated, guessed

    def stream_of_last_copy(self, call: int) -> Key:
        launches = [
            (self.launcher[row], row) for row in self.rows
            if 0 <= self.launcher[row] < call
            and self.thread[self.launcher[row]] == self.thread[call]
        ]  # fmt: skip
        if not launches:
            return NO_STREAM
        _, row = max(launches)
        done = max(self.end[row], self.start[call])
        explains = self.category[row] == "memcpy" and self.end[call] <= done + 20 * US
        return self.key[row] if explains else NO_STREAM

    def nearest_work(self, call: int, *, by_event: bool = False) -> int:
        best, latest = -1, self.start[call]
        for key, queue in self.streams.items():
            if by_event:
                row = self.last_recorded(key, self.start[call], self.end[call])
            else:
                last = self.last_before(key, self.start[call])
                row = queue[last][0] if last >= 0 else -1
            if row >= 0 and latest < self.end[row] <= self.end[call]:
                best, latest = row, self.end[row]
        return best if self.end[call] <= latest + 50 * US else -1

    def event_syncs(self) -> set[tuple[int, int]]:
        found = set()
        for call in self.calls("cudaEventSynchronize"):
            if not self.said:
                row = self.nearest_work(call, by_event=True)
                found |= {(row, call)} - {(-1, call)}
            elif (one := self.said_of(call)) and one[1] != NO_STREAM:
                recorded = self.recorded_at(one[3], call)
                found |= {(row, call) for row in self.queued(one[1], recorded)}
        return found

    def copies(self) -> set[tuple[int, int]]:
        found = set()
        for row in self.rows:
            call = self.launcher[row]
            if self.category[row] != "memcpy" or call < 0:
                continue
            from_pageable, on_device = "Pageable ->" in self.name[row], "DtoD" in self.name[row]
            blocks = self.name[call] == "cudaMemcpy" and not from_pageable and not on_device
            staged = from_pageable and self.bytes[row] > STAGED_COPY_BYTES
            if "-> Pageable" in self.name[row] or blocks or staged:
                found.add((row, call))
        return found

    def possible(self, pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Drop what contradicts the times; only a copy may end after its own call."""
        found = set()
        for given, call in pairs:
            row = self.ended_before(given, call)
            self.issues["link.sync-clocks"] += row != given
            ready = self.start[row] if self.launcher[row] == call else self.end[row]
            if ready <= self.end[call] and self.start[row] < self.end[call]:
                found.add((row, call))
            else:
                self.issues["link.sync-contradicted"] += 1
        return found

    def ended_before(self, row: int, call: int) -> int:
        """Give the work before some that ends up to 20 us after the call that waits for it."""
        late = self.end[row] - self.end[call]
        if self.launcher[row] == call or not 0 < late <= 20 * US:
            return row
        before = row
        for other, _ in self.streams[self.key[row]]:
            if self.end[other] > self.end[call]:
                break
            before = other
        return before if self.end[before] > self.start[call] else row

    def due(self, row: int) -> int:
        """Give after when work is late for its launch and its stream."""
        queue = [other for other, _ in self.streams[self.key[row]]]
        place, due = queue.index(row), 0
        if place:
            due = self.end[queue[place - 1]] + 3 * US
        call = self.launcher[row]
        if call >= 0:
            within = self.start[row] < self.end[call]
            ready = self.start[call] + 20 * US if within else self.end[call] + 3 * US
            due = max(due, ready)
        return due

    def is_woken(self, source: int, row: int) -> bool:
        return source >= 0 and 0 <= self.start[row] - self.end[source] <= 10 * US

    def stated_stream_waits(self) -> set[tuple[int, int]]:
        found = set()
        for number, (key, moment, source, recorded) in enumerate(self.waits):
            later = [row for row, launched in self.streams.get(key, []) if launched >= moment]
            for row in self.queued(source, recorded, frozenset({number})):
                if later and self.key[row] != key:
                    is_possible = self.end[row] <= self.start[later[0]]
                    self.issues["link.event-contradicted"] += not is_possible
                    if is_possible:
                        found.add((row, later[0]))
        return found

    def guessed_stream_waits(self) -> set[tuple[int, int]]:
        launches = sorted((self.launcher[r], r) for r in self.rows if self.launcher[r] >= 0)
        pairs = set()
        for call in self.calls("cudaStreamWaitEvent"):
            every = [(launch, row) for launch, row in launches if launch > call]
            mine = [row for launch, row in every if self.thread[launch] == self.thread[call]]
            pairs |= {(call, row) for row in (*mine[:1], *(row for _, row in every[:1]))}
        of_work: dict[int, set[int]] = {}
        explained = set()
        for call, row in pairs:
            if self.start[row] <= self.due(row):
                continue
            for key in self.streams:
                source = self.last_recorded(key, self.start[call], self.start[row])
                if key != self.key[row] and self.is_woken(source, row):
                    of_work.setdefault(row, set()).add(source)
                    explained.add(call)
        self.issues["link.event-unknown"] += len({call for call, _ in pairs} - explained)
        found = set()
        for row, sources in of_work.items():
            count = sum(other == row for _, other in pairs)
            last = sorted(sources, key=lambda source: (-self.end[source], source))
            found |= {(source, row) for source in last[:count]}
        return found

    def default_stream_waits(self, have_events: set[int]) -> set[tuple[int, int]]:
        found = set()
        for row in self.rows:
            call = self.launcher[row]
            if call < 0 or self.start[row] <= self.due(row) or row in have_events:
                continue
            for key, queue in self.streams.items():
                last = self.last_before(key, self.start[call])
                source = queue[last][0] if last >= 0 else -1
                with_default = key[1] in (0, 7) or self.key[row][1] in (0, 7)
                elsewhere = key != self.key[row] and key[0] == self.key[row][0]
                if elsewhere and with_default and self.is_woken(source, row):
                    found.add((source, row))
        return found


def test_waits_of_random_recordings(tmp_path: Path) -> None:
    met: dict[str, int] = Counter()
    for seed in range(examples(150)):
        trace = recording(tmp_path, seed)
        launcher, log = launcher_rows(trace), IssueLog()
        found: dict[tuple[str, bool], list[tuple[int, int]]] = {}
        here = device_calls(trace, launcher, stream_work(trace, launcher))
        for kind, pairs, inferred in synchronization(here, trace, log):
            rows = list(zip(*(part.tolist() for part in pairs), strict=True))
            assert len(set(rows)) == len(rows)
            found.setdefault((kind, inferred), []).extend(rows)
        slow = Slow(trace)
        assert launcher.tolist() == slow.launcher
        stated, guessed = slow.stream_syncs()
        of_events = slow.possible(slow.event_syncs())
        sure = [
            slow.possible(slow.device_syncs()),
            slow.possible(stated),
            slow.possible(slow.copies()),
        ]
        waits = slow.stated_stream_waits() if slow.said else slow.guessed_stream_waits()
        by_default = slow.default_stream_waits({row for _, row in waits})
        guesses = [slow.possible(guessed)]
        (sure if slow.said else guesses).append(of_events)
        expected = {
            ("sync", False): sure,
            ("sync", True): guesses,
            ("event", False): [waits if slow.said else set()],
            ("event", True): [by_default, set() if slow.said else waits],
        }
        for key, parts in expected.items():
            rows = sorted(pair for part in parts for pair in part)
            assert sorted(found.get(key, [])) == rows, (seed, key)
        issues = {code: count for code, count in slow.issues.items() if count}
        told: dict[str, int] = Counter()
        for code, count in log.table().select("code", "count").iter_rows():
            told[code] += count
        assert told == issues, seed
        met += Counter(issues) + Counter({
            f"{kind} {inferred}": sum(map(len, parts))
            for (kind, inferred), parts in expected.items()
        })  # fmt: skip
        met["default"] += len(by_default)
    assert not ALL or (len(met) == 9 and min(met.values()) > 3), met
