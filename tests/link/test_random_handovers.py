"""Waits of threads for threads in random recordings, against a slow reading of the rules."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from random import Random

import nadi
from nadi.link.dependencies.launch_correlation import launcher_rows
from nadi.link.dependencies.operator_nesting import Nesting, nest
from nadi.link.dependencies.thread_handovers import forward_to_backward, hand_overs
from nadi.model.schema import LABELS
from tests.amounts import ALL, examples
from tests.conftest import PairWriter

US = 1_000
SHORTEST = 30 * US
BACKWARD = "autograd::engine::evaluate_function: MmBackward"
Boundary = tuple[int, bool]  # row, and whether it is its end
Pair = tuple[int, int]


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

    def is_gloo(self, row: int) -> bool:
        return self.name[row].startswith("gloo:")

    def asks(self, row: int) -> bool:
        return self.name[row].startswith("c10d::")

    def time(self, boundary: Boundary) -> int:
        row, is_end = boundary
        return self.end[row] if is_end else self.start[row]

    def stretches(self) -> list[tuple[Boundary, Boundary]]:
        """Give where threads do nothing for long, from one boundary to the next."""
        nesting, found = self.nesting, []
        rows, thread_ptr = nesting.rows.tolist(), nesting.thread_ptr.tolist()
        for low, high in itertools.pairwise(thread_ptr):
            for k in range(2 * low + 1, 2 * high):
                before, after = (
                    (rows[b // 2], b % 2 == 1) for b in nesting.boundary[k - 1 : k + 1].tolist()
                )
                owner = int(nesting.owner[k])
                row = rows[owner]
                is_label = self.category[row] in LABELS and not self.is_gloo(row)
                is_idle = owner < 0 or is_label or self.asks(row)
                if is_idle and self.time(after) - self.time(before) >= SHORTEST:
                    found.append((before, after))
        return found

    def returns(self, work: int, after: Boundary) -> tuple[str, Pair]:
        return "sync" if after[1] else "thread", (work, after[0])

    def waits_for_gloo(self) -> list[tuple[str, Pair]]:
        asking = {self.thread[row] for row in self.rows if self.asks(row)}
        maybe = []
        for before, after in self.stretches():
            begin, end = self.time(before), self.time(after)
            work = [row for row in self.rows if self.is_gloo(row) and begin < self.end[row] <= end]
            work.sort(key=lambda row: self.end[row])
            if work and self.thread[after[0]] in asking:
                maybe.append((before, after, work))
        is_own = [self.thread[self.caller[w[-1]]] == self.thread[a[0]] and self.caller[w[-1]] >= 0
                  for _, a, w in maybe]  # fmt: skip
        sure = [self.is_wait(*one, own=own) for one, own in zip(maybe, is_own, strict=True)]
        late = [self.time(after) - self.end[work[-1]] for _, after, work in maybe]
        usual = upper_quartile([one for one, waits in zip(late, sure, strict=True) if waits])
        sure = [waits or one <= usual for one, waits in zip(late, sure, strict=True)]
        places = {self.place(*one[:2]) for one, waits in zip(maybe, sure, strict=True) if waits}
        return [
            self.returns(row, after)
            for (before, after, work), waits, own in zip(maybe, sure, is_own, strict=True)
            if waits or (own and self.place(before, after) in places)
            for row in work
            if self.thread[row] != self.thread[after[0]]
        ]

    def place(self, before: Boundary, after: Boundary) -> tuple[str, str]:
        return self.name[before[0]], self.name[after[0]]

    def is_wait(self, before: Boundary, after: Boundary, work: list[int], *, own: bool) -> bool:
        begin, end, done = self.time(before), self.time(after), self.end[work[-1]]
        caller = self.caller[work[-1]]
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
            for before, after in self.stretches():
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
    assert not ALL or (len(met) == 6 and min(met.values()) > 10), met
