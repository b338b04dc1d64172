"""Waits of threads for threads in random recordings, against a slow reading of the rules."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import nadi
from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.recordings.dependencies.operator_nesting import Nesting, nest
from nadi.recordings.dependencies.thread_handovers import forward_to_backward, hand_overs
from nadi.trace.schema import LABELS
from tests.amounts import ALL, examples
from tests.conftest import PairWriter

US = 1_000
SHORTEST = 30 * US
BACKWARD = "autograd::engine::evaluate_function: MmBackward"
Boundary = tuple[int, bool]  # row, and whether it is its end
Pair = tuple[int, int]
Maybe = tuple[Boundary, Boundary, list[int]]


def upper_quartile(values: list[int]) -> float:
    """Give the value below which three quarters lie, between two of them in proportion."""
    if not values:
        return -1
    place = 0.75 * (len(values) - 1)
    low, high = sorted(values)[int(place)], sorted(values)[-(-int(4 * place) // 4)]
    return low + (high - low) * (place - int(place))


def recording(folder: Path, seed: int) -> nadi.Trace:
    """Write operators, labels, calls to gloo and its work on up to four threads; tens of us."""
    rng = Random(seed)
    pair = PairWriter(folder)
    number = 10
    for tid in range(1, rng.randint(2, 5)):
        now = 10 * rng.randint(0, 8)
        for _ in range(rng.randint(1, 8)):
            number += 2
            now += rng.choice((0, 5, 20, 29, 30, 40, 40, 100, 490, 500, 510, 700))
            dur = rng.choice((10, 10, 20, 30, 60, 300, 520))
            what = rng.choice(("op", "op", "label", "back", "ask", "gloo", "python"))
            if what == "gloo":
                # its id is the next after that of the call
                pair.event("gloo:all_reduce", now, dur, "user_annotation", tid=tid,
                           **{"Record function id": rng.randint(12, number + 1)})  # fmt: skip
            elif what == "label":
                pair.event(rng.choice("ab"), now, dur, "user_annotation", tid=tid)
            elif what == "python":
                pair.event("main.py: f", now, dur, "python_function", tid=tid)
            else:
                name = {"op": rng.choice(("aten::a", "aten::b")), "back": BACKWARD,
                        "ask": "c10d::allreduce_"}[what]  # fmt: skip
                args = {"Record function id": number, "Sequence number": rng.randint(0, 3)}
                pair.event(name, now, dur, tid=tid, **args)
                if rng.random() < 0.4:
                    pair.event("aten::inner", now, dur // 2, tid=tid)
            now += rng.choice((dur, dur, dur // 2))
    return nadi.read(pair.write()[1])


class Slow:
    """The rules, one stretch of a thread at a time."""

    def __init__(self, trace: nadi.Trace, nesting: Nesting) -> None:
        nodes = trace.nodes
        self.nesting = nesting
        self.name = nodes["name"].cast(str).to_list()
        self.category = nodes["category"].cast(str).to_list()
        self.start = nodes["start"].to_list()
        self.end = (nodes["start"] + nodes["duration"]).to_list()
        self.thread = nodes["thread"].to_list()
        self.sequence = nodes["sequence"].to_list()
        self.rows = range(nodes.height)
        self.caller = launcher_rows(trace).tolist()
        self.on_threads = set(nesting.rows.tolist())

    def is_gloo(self, row: int) -> bool:
        return self.name[row].startswith("gloo:")

    def asks(self, row: int) -> bool:
        return self.name[row].startswith("c10d::")

    def time(self, boundary: Boundary) -> int:
        row, is_end = boundary
        return self.end[row] if is_end else self.start[row]

    def stretches(self, *, operators: bool = False) -> list[tuple[Boundary, Boundary, int]]:
        """Give where threads do nothing for long, from one boundary to the next, and in what.

        Also what operators do by themselves, if ``operators``.
        """
        nesting, found = self.nesting, []
        rows, thread_ptr = nesting.rows.tolist(), nesting.thread_ptr.tolist()
        for low, high in itertools.pairwise(thread_ptr):
            for k in range(2 * low + 1, 2 * high):
                before, after = (
                    (rows[b // 2], b % 2 == 1) for b in nesting.boundary[k - 1 : k + 1].tolist()
                )
                owner = rows[nesting.owner[k]] if nesting.owner[k] >= 0 else -1
                is_idle = self.is_idle(owner) or (operators and self.may_wait(owner))
                if is_idle and self.time(after) - self.time(before) >= SHORTEST:
                    found.append((before, after, owner))
        return found

    def is_idle(self, owner: int) -> bool:
        is_label = self.category[owner] in LABELS and not self.is_gloo(owner)
        return owner < 0 or is_label or self.asks(owner)

    def may_wait(self, owner: int) -> bool:
        """Return whether an operator may wait in its own time: not all of them only compute."""
        if self.category[owner] != "operator":
            return False
        asks = any(self.asks(row) and owner in self.parents(row) for row in self.on_threads)
        return asks or not self.name[owner].startswith("aten::")

    def returns(self, work: int, after: Boundary) -> tuple[str, Pair]:
        return "sync" if after[1] else "thread", (work, after[0])

    def waits_for_gloo(self) -> list[tuple[str, Pair]]:
        asking = {self.thread[row] for row in self.rows if self.asks(row)}
        maybe, computing = [], []
        for before, after, owner in self.stretches(operators=True):
            begin, end = self.time(before), self.time(after)
            work = [row for row in self.rows if self.is_gloo(row) and begin < self.end[row] <= end]
            work.sort(key=lambda row: self.end[row])
            if work and self.thread[after[0]] in asking:
                (maybe if self.is_idle(owner) else computing).append((before, after, work))
        is_own = [self.is_own(a, w) for _, a, w in maybe]
        sure = [self.is_wait(*one) for one in maybe]
        late = [self.late(a, w) for _, a, w in maybe]
        usual = upper_quartile([one for one, waits in zip(late, sure, strict=True) if waits])
        sure = [waits or one <= usual for one, waits in zip(late, sure, strict=True)]
        places = {self.place(*one[:2]) for one, waits in zip(maybe, sure, strict=True) if waits}
        known = [
            one
            for one, waits, own in zip(maybe, sure, is_own, strict=True)
            if waits or (own and self.place(*one[:2]) in places)
        ]
        usual = upper_quartile([self.late(a, w) for _, a, w in known])
        known += self.waits_of_operators(computing, max(usual, 100 * US))
        found = []
        for before, after, work in known:
            for row in work:
                if self.thread[row] == self.thread[after[0]]:
                    continue
                found.append(self.returns(row, after))
                if self.caller[row] < 0 and self.start[row] >= self.time(before):
                    found.append(("thread" if before[1] else "launch", (before[0], row)))
        return found

    def waits_of_operators(self, computing: list[Maybe], soon: float) -> list[Maybe]:
        """Choose those in which an operator waits for what it asked for, or does so repeatedly."""
        at: dict[tuple[str, str], list[tuple[Maybe, bool, bool]]] = defaultdict(list)
        for one in computing:
            before, after, work = one
            begin, done, late = self.time(before), self.end[work[-1]], self.late(after, work)
            caller, own = self.caller[work[-1]], self.is_own(after, work)
            called = own and self.start[caller] <= begin <= self.end[caller]
            at[self.place(before, after)].append((one, called, own and done - begin >= late))
        found = []
        for here in at.values():
            by_call = any(called and likely for _, called, likely in here)
            near = [likely and self.late(a, w) <= soon for (_, a, w), _, likely in here]
            repeats = sum(near) >= 3 and 2 * sum(near) >= len(near)
            found += [
                one for (one, called, _), is_near in zip(here, near, strict=True)
                if (called and by_call) or (is_near and repeats)
            ]  # fmt: skip
        return found

    def is_own(self, after: Boundary, work: list[int]) -> bool:
        caller = self.caller[work[-1]]
        return caller >= 0 and self.thread[caller] == self.thread[after[0]]

    def late(self, after: Boundary, work: list[int]) -> int:
        return self.time(after) - self.end[work[-1]]

    def place(self, before: Boundary, after: Boundary) -> tuple[str, str]:
        return self.name[before[0]], self.name[after[0]]

    def is_wait(self, before: Boundary, after: Boundary, work: list[int]) -> bool:
        begin, end, done = self.time(before), self.time(after), self.end[work[-1]]
        caller, own = self.caller[work[-1]], self.is_own(after, work)
        at_once = own and self.start[caller] <= begin <= self.end[caller]
        return at_once or ((own or caller < 0) and done - begin >= end - done)

    def parents(self, row: int) -> list[int]:
        """Give the rows around one, and itself."""
        rows = self.nesting.rows.tolist()
        op = rows.index(row)
        found = []
        while op >= 0:
            found.append(rows[op])
            op = int(self.nesting.parent[op])
        return found

    def main_thread(self) -> int:
        counts: dict[int, int] = Counter()
        for row in self.nesting.rows.tolist():
            is_backward = any(self.name[p].startswith("autograd::") for p in self.parents(row))
            if self.category[row] == "operator" and not is_backward:
                counts[self.thread[row]] += 1
        return min(counts, key=lambda thread: (-counts[thread], thread), default=-1)

    def waits_for_workers(self) -> list[tuple[str, Pair]]:
        main, found = self.main_thread(), []
        of_gloo = {self.thread[row] for row in self.rows if self.is_gloo(row)}
        workers = {self.thread[row] for row in self.rows if self.category[row] == "operator"}
        for worker in workers - of_gloo - {main}:
            work = [
                row for row in self.nesting.rows.tolist()
                if self.thread[row] == worker and len(self.parents(row)) == 1
            ]  # fmt: skip
            for before, after, _ in self.stretches():
                begin, end = self.time(before), self.time(after)
                later = [row for row in work if self.start[row] > begin]
                # what ends by then, with all before it
                done = [
                    r for k, r in enumerate(work) if max(self.end[x] for x in work[: k + 1]) <= end
                ]
                if self.thread[after[0]] != main or not later or not done or later[0] > done[-1]:
                    continue
                found.append(("thread" if before[1] else "launch", (before[0], later[0])))
                found.append(self.returns(done[-1], after))
        return found

    def backward(self) -> set[Pair]:
        """Pair each backward operation with the last forward one of its number, elsewhere."""
        numbered = [
            r for r in self.rows if self.category[r] == "operator" and self.sequence[r] >= 0
        ]
        backward = [row for row in numbered if self.name[row] == BACKWARD]
        threads = {self.thread[row] for row in backward}
        forward = {
            self.sequence[row]: row
            for row in numbered
            if self.name[row] != BACKWARD and self.thread[row] not in threads
        }
        pairs = [(forward.get(self.sequence[row], -1), row) for row in backward]
        return {(a, b) for a, b in pairs if a >= 0 and self.end[a] <= self.start[b]}


def test_hand_overs_of_random_recordings(tmp_path: Path) -> None:
    met: dict[str, int] = Counter()
    for seed in range(examples(200)):
        trace = recording(tmp_path, seed)
        nesting = nest(trace)
        slow = Slow(trace, nesting)
        found = [
            (kind, pair)
            for kind, pairs in hand_overs(trace, nesting)
            for pair in zip(*(part.tolist() for part in pairs), strict=True)
        ]
        of_gloo = slow.waits_for_gloo()
        workers = slow.waits_for_workers()
        assert sorted(found) == sorted(of_gloo + workers), seed
        backward = list(zip(*(p.tolist() for p in forward_to_backward(trace)), strict=True))
        assert len(set(backward)) == len(backward)
        assert set(backward) == slow.backward(), seed
        met += Counter(f"gloo {kind}" for kind, _ in of_gloo)
        met += Counter(f"worker {kind}" for kind, _ in workers)
        met["backward"] += len(backward)
    assert not ALL or (len(met) == 7 and min(met.values()) > 5), met
