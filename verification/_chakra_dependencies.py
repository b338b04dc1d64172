"""Dependencies: the converter's looked for in Nadi's, and Nadi's in the converter's."""

from __future__ import annotations

from functools import cached_property

from _chakra_pair import Pair
from _reach import Reach
from _report import Tally

_LONGEST_WAKE_UP_NS = 500_000
_RULE_OF_KIND = {
    "call": "call", "order": "order", "launch": "launch", "stream": "stream", "event": "event",
    "sync": "sync", "thread": "hand-over", "comm": "collective",
    "raw": "tensor", "war": "tensor", "waw": "tensor",
}  # fmt: skip


class Dependencies:
    """Compares dependencies of one golden answer with those of Nadi's trace."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.answer, self.ours = pair, pair.answer, pair.ours

    def theirs(self) -> Tally:
        """Look for each of the converter's data dependencies in what Nadi's imply."""
        tally = Tally()
        for number, message in self.answer.messages.items():
            for source in message.data_deps:
                src, dst = self.pair.row[source], self.pair.row[number]
                exact = min(self.ours.start[src], self.ours.start[dst]) >= 0
                exact = exact and self.ours.implies(src, dst)
                rule = "" if exact else self._rule(source, number)
                tally.add(exact=exact, rule=rule, detail=self.pair.say(number, source, "none"))
        return tally

    def _rule(self, source: int, number: int) -> str:
        """Name the rule by which the converter waits for what Nadi does not wait for.

        A rule of the walk by id holds only if what is passed over is all that is lost: the
        node still follows what was before it on its own thread.
        """
        on_thread = self.answer.before_on_thread.get(number, -1) == source
        if self.pair.is_untimed(number):
            return "untimed" if on_thread else ""
        src, dst = self.pair.row[source], self.pair.row[number]
        if on_thread and self._follows_own_thread(number):
            if self.pair.is_untimed(source):
                return "untimed"
            if not self.ours.same(src, dst, "thread"):
                return "asynchronous"
            return "in-background" if self._outlives_parent(src) else ""
        position = self.ours.values["event"][dst]
        rf_id, first = self.pair.recording.gap_sources.get(position, (0, None))
        if first is not None and rf_id == self.answer.attribute(source, "rf_id"):
            return self._rule_of_gap(src, self.pair.row_of_event[first.position])
        return ""

    def _rule_of_gap(self, src: int, first: int) -> str:
        """Say why ``first``, the operation after a pause, is not taken to wait for ``src``."""
        start, end = self.ours.start, self.ours.end
        waits = self.ours.waits.get(first, [])
        if end[src] > start[first]:
            return "gap-contradicted"
        if any(kind == "launch" for _, kind in waits):
            return "gap-launched"
        if any(kind in ("thread", "sync") and end[s] >= end[src] for s, kind in waits):
            return "gap-last"
        return "gap-late" if start[first] - end[src] > _LONGEST_WAKE_UP_NS else ""

    def _follows_own_thread(self, number: int) -> bool:
        """Tell whether a node follows the last one before it in the walk on its real thread.

        Work of other threads, and what its own does not wait for, is passed over.
        """
        row = self.pair.row[number]
        before = self.answer.before_on_thread.get(number, -1)
        while before >= 0:
            src = self.pair.row[before]
            if self.ours.same(src, row, "thread") and not self._outlives_parent(src):
                return self.ours.implies(src, row)
            before = self.answer.before_on_thread.get(before, -1)
        return True

    def _outlives_parent(self, row: int) -> bool:
        parent = self.ours.values["parent"][row]
        if parent < 0 or not self.ours.same(row, parent, "thread"):
            return False
        return self.ours.end[parent] < self.ours.end[row]

    def further(self) -> Tally:
        """Look for each of Nadi's dependencies in what the converter's imply."""
        tally = Tally()
        messages, node = self.answer.messages, self.pair.node
        place = {number: at for at, number in enumerate(messages)}
        edges = [(place[d], place[n]) for n, m in messages.items() for d in m.data_deps]
        reach, names = Reach(len(place), edges), self.ours.values["name"]
        for src, dst, kind in self.ours.deps:
            one, other = place.get(node.get(src, -1)), place.get(node.get(dst, -1))
            exact = one is not None and other is not None and reach.leads(one, other)
            rule = _RULE_OF_KIND.get(kind, "") if self._holds(src, dst, kind) else ""
            tally.add(exact=exact, rule=rule, detail=f"{kind}: {names[src]} -> {names[dst]}")
        return tally

    def _holds(self, src: int, dst: int, kind: str) -> bool:
        """Tell whether the recorded times and places show what a dependency says."""
        start, end, same = self.ours.start, self.ours.end, self.ours.same
        on_host = self.ours.values["is_cpu"]
        if kind == "sync":  # a call returns; of a copy of its own it may wait for the start only
            waited = start[src] if same(src, dst, "correlation") else end[src]
            return waited <= end[dst] and not (same(src, dst, "thread") and on_host[src])
        if kind == "comm":
            in_order = self.ours.asked_for(src) < self.ours.asked_for(dst)
            return in_order and same(src, dst, "group", "is_cpu")
        if not 0 <= start[src] <= start[dst]:
            return False
        if kind == "call":
            return same(src, dst, "thread") and start[dst] <= end[src]
        if kind == "order":
            return same(src, dst, "thread")
        if kind == "launch" and on_host[dst]:
            return not same(src, dst, "thread")
        if kind == "launch":
            return same(src, dst, "correlation")
        if kind == "stream":
            return same(src, dst, "device", "stream")
        if kind == "event":
            return not same(src, dst, "device", "stream") and end[src] <= start[dst]
        if kind == "thread":
            return not same(src, dst, "thread") and end[src] <= start[dst]
        return bool(self._storages.get(src, set()) & self._storages.get(dst, set()))

    @cached_property
    def _storages(self) -> dict[int, set[int]]:
        """The memory that each row was given or gave."""
        trace = self.ours.trace
        storage = trace.tensors["storage_id"].to_list()
        found: dict[int, set[int]] = {}
        for row, tensor in trace.operands.select("node", "tensor").iter_rows():
            if tensor >= 0:
                found.setdefault(row, set()).add(storage[tensor])
        return found
