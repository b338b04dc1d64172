"""What Chakra's linker and converter make of a pair of traces, against what Nadi makes of it.

Usage: python verification/chakra_link.py [GOLDEN_FOLDER=HOST,DEVICE | TRACE_FOLDER...]

A golden folder holds ``et_plus.json.gz``, the linker's output for the pair, and
``out.et.gz``, the converter's output for that. Compared one by one: operations, kinds,
starts, durations, exclusive durations, threads, streams, sequence numbers, parents,
communication, the converter's nodes, control and data dependencies, and the dependencies
that only Nadi has. What differs is counted under a rule (``RULES``) only where a computation
from the recording shows that this very difference comes from that rule, most by working
out the peer's figure by the peer's own rule (``_chakra.py``); else it is not explained.

Of a folder with the traces of a job it is checked that dependencies form no cycle, that all
device work but the first of its stream has a predecessor on the stream, and that every
collective is ordered behind the one before it in its process group.

How ``end of a`` and ``start of b`` follow from a table of dependencies is worked out in
``_reach.py``; only what Nadi answers is asked of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from _chakra import THREAD_NODE, Answer, Event, Recording
from _chakra import exclusive_ns, innermost_ns, peer_exclusive_us
from _reach import Reach, topological_order
from _report import SHARED, Checks, Tally

import nadi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.reference.chakra_messages import COLLECTIVE_TYPES, NODE_TYPES

GOLDEN, TRACES = SHARED / "golden" / "chakra", SHARED / "traces"
DEFAULT = (
    *(
        f"{GOLDEN}/{golden}={TRACES}/{host},{TRACES}/{device}"
        for golden, host, device in (
            ("torch213_mlp", "cpu_mlp/host.json.gz", "cpu_mlp/device.json.gz"),
            ("torch213_transformer4", "cpu_transformer4/host.json.gz",
             "cpu_transformer4/device.json.gz"),
            ("torch213_ddp4_r0", "cpu_ddp4/host_0.json.gz", "cpu_ddp4/device_0.json.gz"),
            ("torch213_ddp4_r1", "cpu_ddp4/host_1.json.gz", "cpu_ddp4/device_1.json.gz"),
            ("gpu_resnet_1gpu_et103__nccl_data", "gpu_resnet_pair/host.json.gz",
             "gpu_resnet_pair/device.json.gz"),
        )
    ),
    *(
        f"{TRACES}/{folder}"
        for folder in ("cpu_mlp", "cpu_transformer4", "cpu_transformer_mid", "cpu_transformer_big",
                       "cpu_ddp4", "gpu_resnet_pair", "gpu_simple_add_pair")
    ),
)  # fmt: skip

# what differs from the peer, and how it is shown that a difference is of that kind
RULES = {
    "calls-are-nodes":
        "runtime calls are operations: they, their time and their dependencies are only here",
    "memsets-are-nodes": "memsets are device work; the linker drops them",
    "labels-are-nodes": "device annotations, Python functions and synchronisation events are kept",
    "untimed": "thread, process and set-up nodes are no work: they have no time, and what comes "
        "after them follows the work before them",
    "profiler-step": "a profiler step has a time; the linker leaves it out",
    "root": "the process has no parent; the linker lets it be its own",
    "later-parent": "no operation starts before its parent: the one named starts after it",
    "metadata": "process and thread nodes are metadata; the converter knows set-up alone",
    "gloo": "gloo's work is communication; the converter knows NCCL's kernels alone",
    "thread": "the thread is the device trace's: gloo's work has the host trace's launcher's",
    "equal-starts": "who encloses an operation gives up its time though both start together; the "
        "linker looks at the shorter first, and the longer keeps the time",
    "outlives": "time goes to the operation that began last, also where it outlives another; the "
        "linker takes off only what ends in time",
    "float": "times are whole ns; the linker subtracts float64 us",
    "truncated": "durations are in ns; the converter cuts them to whole us",
    "optimizer-step": "an optimiser step keeps its exclusive time; the converter writes 0",
    "no-dependencies": "every node is kept; the converter drops those without dependencies",
    "gap-contradicted": "no operation waits for one that ends after it starts; the gap rule takes "
        "the latest to start",
    "gap-guess": "a pause of 1000 us says nothing of what a thread waited for",
    "asynchronous": "work on another thread does not hold up the one that asked for it; the "
        "converter chains both by id",
    "call": "an operation starts and ends inside the one that calls it",
    "order": "operations of one thread run one after the other",
    "launch": "work starts after the call that launched it has begun",
    "stream": "device work follows what was before it on its stream",
    "event": "device work follows another stream's work that it waited for",
    "sync": "a call returns after the work it waited for has ended",
    "hand-over": "a thread goes on when work on another thread has ended",
    "collective": "a collective follows the one before it in its process group",
    "tensor": "an operation uses memory after the one that used it before",
}  # fmt: skip

_KIND_RULES = {
    "call": "call", "order": "order", "launch": "launch", "stream": "stream", "event": "event",
    "sync": "sync", "thread": "hand-over", "comm": "collective",
    "raw": "tensor", "war": "tensor", "waw": "tensor",
}  # fmt: skip
_COMM_TYPES = {name: name.lower() for name in COLLECTIVE_TYPES}
_EXTRA_CATEGORIES = {
    "cuda_runtime": "calls-are-nodes", "cuda_driver": "calls-are-nodes",
    "gpu_memset": "memsets-are-nodes", "gpu_user_annotation": "labels-are-nodes",
    "python_function": "labels-are-nodes", "cuda_sync": "labels-are-nodes",
}  # fmt: skip


class Linked:
    """Nadi's trace as lists by row, and what its dependencies imply."""

    def __init__(self, trace: nadi.Trace) -> None:
        self.trace = trace
        columns = ("id", "parent", "start", "duration", "exclusive", "thread", "device", "stream",
                   "event", "rf_id", "correlation", "sequence", "comm_bytes", "group",
                   "is_cpu")  # fmt: skip
        self.values = {name: trace.nodes[name].to_list() for name in columns}
        texts = ("name", "kind", "category", "comm_type")
        self.values |= {name: trace.nodes[name].cast(str).to_list() for name in texts}
        self.start = self.values["start"]
        self.end = [
            start + duration
            for start, duration in zip(self.start, self.values["duration"], strict=True)
        ]
        self.deps = list(trace.deps.select("src", "dst", "kind").iter_rows())

    def edges(self) -> list[tuple[int, int]]:
        """Give what comes before what: the start of row r is vertex 2 r, its end 2 r + 1.

        Device work is first told what is before it on its stream, so that paths follow it.
        """
        end, found = self.end, [(2 * row, 2 * row + 1) for row in range(len(self.start))]
        for src, dst, kind in sorted(self.deps, key=lambda dep: dep[2] != "stream"):
            if kind == "sync":
                found.append((2 * src + 1, 2 * dst + 1))
            elif kind in ("call", "launch", "comm"):
                found.append((2 * src, 2 * dst))
            else:  # of two that overlap on a thread the first only begins first
                found.append((2 * src + (kind != "order" or end[src] <= self.start[dst]), 2 * dst))
            if kind == "call" and end[dst] <= end[src]:
                found.append((2 * dst + 1, 2 * src + 1))
        return found

    @cached_property
    def reach(self) -> Reach:
        return Reach(2 * len(self.start), self.edges())

    def ancestors(self, row: int) -> Iterator[int]:
        while (row := self.values["parent"][row]) >= 0:
            yield row

    def implies(self, src: int, dst: int) -> bool:
        """Tell whether dst follows src: its end, but its start if src encloses dst."""
        encloses = src in self.ancestors(dst)
        return self.reach.leads(2 * src + (not encloses), 2 * dst)


class Comparison:
    """One golden folder against Nadi's trace of the same pair.

    ``row`` gives the row of each of the linker's nodes, ``node`` the reverse.
    """

    def __init__(self, answer: Answer, host: Path, device: Path) -> None:
        self.answer, self.recording = answer, Recording(device)
        host_trace = nadi.read(host)
        self.ours = Linked(nadi.link_pair(host_trace, nadi.read(device)))
        values = self.ours.values
        # the linker numbers host nodes from 0 in order of their ids
        row_of_id = {number: row for row, number in enumerate(values["id"])}
        host_nodes = sorted(n for n in answer.nodes if not answer.is_device(n))
        host_ids = sorted(host_trace.nodes["id"].to_list())
        self.row = {
            node: row_of_id.get(number, -1)
            for node, number in zip(host_nodes, host_ids, strict=False)
        }
        row_of_event = {event: row for row, event in enumerate(values["event"]) if event >= 0}
        position = {
            (event.name, event.start, event.duration): event.position
            for event in self.recording.events.values()
            if event.is_device_op
        }
        for number, node in answer.nodes.items():
            if answer.is_device(number):
                key = node["name"], node["ts"], node["inclusive_dur"]
                self.row[number] = row_of_event.get(position.get(key, -1), -1)
        self.row = {node: row for node, row in self.row.items() if row >= 0}
        self.node = {row: node for node, row in self.row.items()}
        self.exclusive_rules: dict[int, str] = {}

    def event(self, row: int) -> Event | None:
        return self.recording.events.get(self.ours.values["event"][row])

    def is_untimed(self, node: int) -> bool:
        """Tell whether a host node has no event in the device file."""
        id_known = self.answer.attribute(node, "rf_id") in self.recording.host_op_of_id
        return not (id_known or self.is_profiler_step(node) or self.answer.is_device(node))

    def is_profiler_step(self, node: int) -> bool:
        return self.answer.nodes[node]["name"].startswith("ProfilerStep")

    def say(self, node: int, theirs: Any, ours: Any) -> str:
        name = self.answer.nodes[node]["name"][:50]
        return f"node {node} ({name}): {theirs!r}, Nadi {ours!r}"

    # --- nodes ---------------------------------------------------------------------------

    def operations(self) -> Tally:
        """Compare what is there: by id and name, device work by name, time and stream."""
        tally, values = Tally(), self.ours.values
        for number, node in self.answer.nodes.items():
            row = self.row.get(number, -1)
            same = row >= 0 and node["name"] == values["name"][row]
            if same and not self.answer.is_device(number):
                # process and thread nodes have no function: 0 there, none here
                same = self.answer.attribute(number, "rf_id") == max(values["rf_id"][row], 0)
            tally.add(exact=same, detail=f"node {number} ({node['name'][:50]}) is not there")
        ids = {self.answer.attribute(number, "rf_id") for number in self.answer.nodes}
        for row in set(range(len(self.ours.start))) - set(self.node):
            event = self.event(row)
            rule = _EXTRA_CATEGORIES.get(event.category, "") if event else ""
            if rule and values["rf_id"][row] in ids:
                rule = ""  # a host operation that the linker has should have been found
            tally.add(rule=rule, detail=f"row {row} ({values['name'][row]}) is only in Nadi's")
        return tally

    def kinds(self) -> Tally:
        tally, values = Tally(), self.ours.values
        for number, message in self.answer.messages.items():
            row = self.row[number]
            theirs, ours = NODE_TYPES[message.type].removesuffix("_NODE"), values["kind"][row]
            rule = ""
            if theirs == "COMP" and ours == "METADATA" and message.name == THREAD_NODE:
                rule = "metadata"
            elif theirs == "COMP" and ours.startswith("COMM_") and self._is_gloo(row):
                rule = "gloo"
            tally.add(exact=theirs == ours, rule=rule, detail=self.say(number, theirs, ours))
        return tally

    def _is_gloo(self, row: int) -> bool:
        event = self.event(row)
        return event is not None and event.name.startswith("gloo:")

    def starts(self) -> Tally:
        return self._times("ts", lambda row: self.ours.start[row] - self.recording.origin)

    def durations(self) -> Tally:
        return self._times("inclusive_dur", lambda row: self.ours.values["duration"][row])

    def _times(self, key: str, ours: Callable[[int], int]) -> Tally:
        """Compare decimal us with ns, digit by digit."""
        tally = Tally()
        for number, node in self.answer.nodes.items():
            row, theirs = self.row[number], node.get(key)
            if theirs is None:
                has_none = self.ours.start[row] < 0
                tally.add(
                    rule=self._rule_without_time(number, has_none),
                    detail=self.say(number, theirs, ours(row)),
                )
            else:
                exact = Decimal(repr(theirs)) * 1000 == ours(row)
                tally.add(exact=exact, detail=self.say(number, theirs, ours(row)))
        return tally

    def _rule_without_time(self, node: int, has_none: bool) -> str:
        if self.is_untimed(node):
            return "untimed" if has_none else ""
        row, event = self.row[node], self.event(self.row[node])
        if self.is_profiler_step(node) and event and not has_none:
            end = Decimal(repr(event.start)) + Decimal(repr(event.duration))
            return "profiler-step" if end * 1000 == self._end_since_origin(row) else ""
        return ""

    def _end_since_origin(self, row: int) -> int:
        return self.ours.end[row] - self.recording.origin

    def exclusive(self) -> Tally:
        """Compare exclusive durations; the rule of each is kept for the converter's."""
        tally, values = Tally(), self.ours.values
        peer, repaired, right, whole = self._exclusive_by_rule()
        calls_within = self._time_of_calls()
        for number, node in self.answer.nodes.items():
            row, theirs = self.row[number], node.get("exclusive_dur")
            ours = values["exclusive"][row]
            position = values["event"][row]
            if theirs is None:
                rule = self._rule_without_time(number, ours < 0)
            elif self.answer.is_device(number):
                rule = ""
            elif peer[position] != theirs or ours + calls_within.get(row, 0) != right[position]:
                rule = ""  # their figure, or Nadi's, comes from no rule known here
            elif repaired[position] != right[position]:
                rule = "outlives"
            elif whole[position] != right[position]:
                rule = "equal-starts"
            else:
                rule = "calls-are-nodes" if ours != right[position] else "float"
            exact = theirs is not None and round(Decimal(repr(theirs)) * 1000) == ours
            if exact and abs(theirs * 1000 - ours) > 0.001:
                exact, rule = False, rule or "float"
            self.exclusive_rules[number] = "" if exact else rule
            tally.add(exact=exact, rule=rule, detail=self.say(number, theirs, ours))
        return tally

    def _exclusive_by_rule(self) -> tuple[dict[int, Any], ...]:
        """Work out exclusive times by position: theirs in us, then three in ns.

        The ns are of their rule with the longest first, of the operation innermost at each
        moment, and of their rule as it is.
        """
        results: tuple[dict[int, Any], ...] = ({}, {}, {}, {})
        for ops in self.recording.threads.values():
            results[0].update(peer_exclusive_us(ops))
            spans = {}
            for op in ops:
                start = int(Decimal(repr(op.start)) * 1000)
                spans[op.position] = start, start + int(Decimal(repr(op.duration)) * 1000)
            rank = {op.position: op.category == "cpu_op" for op in ops}
            order = sorted(spans, key=lambda p: (spans[p][0], -spans[p][1], rank[p], p))
            ordered = [spans[position] for position in order]
            for result, figures in zip(
                results[1:],
                (exclusive_ns(ordered), innermost_ns(ordered),
                 exclusive_ns(ordered, shortest_first=True)),
                strict=True,
            ):  # fmt: skip
                result.update(zip(order, figures, strict=True))
        return results

    def _time_of_calls(self) -> dict[int, int]:
        """Add up the exclusive time of what the linker does not know, by its nearest host op."""
        values = self.ours.values
        found: dict[int, int] = {}
        for row in range(len(self.ours.start)):
            event = self.event(row)
            if event is None or row in self.node or not values["is_cpu"][row]:
                continue
            owner = next((a for a in self.ours.ancestors(row) if a in self.node), -1)
            found[owner] = found.get(owner, 0) + values["exclusive"][row]
        return found

    def threads(self) -> Tally:
        """Compare threads of host operations: the host trace counts them, the device's are real."""
        tally, values = Tally(), self.ours.values
        counts: dict[int, dict[int, int]] = {}
        for number, row in self.row.items():
            if not self.answer.is_device(number) and not self.is_untimed(number):
                of_one = counts.setdefault(self.answer.attribute(number, "tid"), {})
                of_one[values["thread"][row]] = of_one.get(values["thread"][row], 0) + 1
        meant = {tid: max(of_one, key=lambda t: of_one[t]) for tid, of_one in counts.items()}
        for number, row in self.row.items():
            if self.answer.is_device(number):
                continue
            ours, theirs = values["thread"][row], self.answer.attribute(number, "tid")
            if self.is_untimed(number):
                tally.add(rule="untimed" if ours < 0 else "", detail=self.say(number, theirs, ours))
                continue
            event = self.event(row)
            recorded = event is not None and event.thread == ours
            rule = "thread" if recorded and event.name.startswith("gloo:") else ""
            exact = recorded and meant[theirs] == ours
            tally.add(exact=exact, rule=rule, detail=self.say(number, theirs, ours))
        return tally

    def sequence_numbers(self) -> Tally:
        tally = Tally()
        for number, row in self.row.items():
            if not self.answer.is_device(number):
                theirs, ours = self.answer.attribute(number, "seq_id"), self.ours.values["sequence"]
                tally.add(exact=theirs == ours[row], detail=self.say(number, theirs, ours[row]))
        return tally

    def streams(self) -> Tally:
        tally = Tally()
        for number, row in self.row.items():
            if self.answer.is_device(number):
                theirs, ours = self.answer.nodes[number]["stream"], self.ours.values["stream"][row]
                tally.add(exact=theirs == ours, detail=self.say(number, theirs, ours))
        return tally

    def parents(self, *, device: bool) -> Tally:
        tally = Tally()
        for number, row in self.row.items():
            if self.answer.is_device(number) != device:
                continue
            theirs = self.answer.nodes[number]["ctrl_deps"]
            ours = self.node.get(self.ours.values["parent"][row], -1)
            rule = ""
            if ours < 0 and theirs == number:
                rule = "root"
            elif ours < 0 and self.ours.start[self.row[theirs]] > self.ours.start[row] >= 0:
                rule = "later-parent"
            tally.add(exact=theirs == ours, rule=rule, detail=self.say(number, theirs, ours))
        return tally

    # --- the converter -------------------------------------------------------------------

    def converted_nodes(self) -> Tally:
        """Compare which nodes are there: some are dropped by the converter."""
        tally = Tally()
        needed = {dep for message in self.answer.messages.values() for dep in message.data_deps}
        for number in self.answer.nodes:
            lonely = number not in needed and number not in self.answer.before_on_thread
            rule = "no-dependencies" if lonely and not self.answer.is_device(number) else ""
            tally.add(
                exact=number in self.answer.messages, rule=rule,
                detail=f"node {number} is not in the converter's file",
            )  # fmt: skip
        return tally

    def converted_durations(self) -> Tally:
        tally = Tally()
        for number, message in self.answer.messages.items():
            ours, theirs = self.ours.values["exclusive"][self.row[number]], message.duration_micros
            linked = self.answer.nodes[number].get("exclusive_dur")
            if linked is None:
                rule = self._rule_without_time(number, ours < 0) if theirs == 0 else ""
            elif "Optimizer.step" in message.name and theirs == 0:
                rule = "optimizer-step"
            elif int(linked) != theirs:
                rule = ""
            else:
                rule = self.exclusive_rules[number] or "truncated"
                rule = "truncated" if ours // 1000 == theirs else rule
            exact = linked is not None and ours == theirs * 1000
            tally.add(exact=exact, rule=rule, detail=self.say(number, theirs, ours))
        return tally

    def communication(self, what: str) -> Tally:
        """Compare type or bytes of what the converter knows as communication."""
        tally, values = Tally(), self.ours.values
        for number in self.answer.messages:
            attributes = self.answer.message_attributes(number)
            if what not in attributes:
                continue
            row, theirs = self.row[number], attributes[what]
            if what == "comm_type":
                theirs = COLLECTIVE_TYPES[theirs].lower()
            ours = values["comm_type" if what == "comm_type" else "comm_bytes"][row]
            tally.add(exact=theirs == ours, detail=self.say(number, theirs, ours))
        return tally

    def control_dependencies(self) -> Tally:
        """Compare what the converter gives as control dependency: the parent, if it has it yet."""
        tally = Tally()
        for number, message in self.answer.messages.items():
            row, theirs = self.row[number], list(message.ctrl_deps)
            parent = self.node.get(self.ours.values["parent"][row], -1)
            ours = [parent] if parent >= 0 else []
            rule = ""
            if theirs == [] and ours:
                named = self.answer.nodes[number]["ctrl_deps"]
                rule = "no-dependencies" if named == parent > number else ""
            tally.add(exact=theirs == ours, rule=rule, detail=self.say(number, theirs, ours))
        return tally

    # --- dependencies --------------------------------------------------------------------

    def data_dependencies(self) -> Tally:
        """Look for each of the converter's in what Nadi's imply."""
        tally = Tally()
        for number, message in self.answer.messages.items():
            for source in message.data_deps:
                src, dst = self.row[source], self.row[number]
                exact = min(self.ours.start[src], self.ours.start[dst]) >= 0
                exact = exact and self.ours.implies(src, dst)
                rule = "" if exact else self._rule_of_dependency(source, number)
                tally.add(exact=exact, rule=rule, detail=self.say(number, source, "none"))
        return tally

    def _rule_of_dependency(self, source: int, number: int) -> str:
        """Name the rule by which the converter waits for what Nadi does not wait for."""
        on_thread = self.answer.before_on_thread.get(number, -1) == source
        if self.is_untimed(number):
            return "untimed" if on_thread else ""
        src, dst = self.row[source], self.row[number]
        if on_thread and self._follows_own_thread(number):
            if self.is_untimed(source):
                return "untimed"
            thread = self.ours.values["thread"]
            return "asynchronous" if thread[src] != thread[dst] else ""
        rf_id = self.recording.gap_sources.get(self.ours.values["event"][dst], 0)
        if rf_id and rf_id == self.answer.attribute(source, "rf_id"):
            late = self.ours.end[src] > self.ours.start[dst]
            return "gap-contradicted" if late else "gap-guess"
        return ""

    def _follows_own_thread(self, number: int) -> bool:
        """Tell whether a node follows the last one before it in the walk on its real thread."""
        thread, row = self.ours.values["thread"], self.row[number]
        before = self.answer.before_on_thread.get(number, -1)
        while before >= 0 and thread[self.row[before]] != thread[row]:
            before = self.answer.before_on_thread.get(before, -1)
        return before < 0 or self.ours.implies(self.row[before], row)

    def further_dependencies(self) -> Tally:
        """Look for each of Nadi's dependencies in what the converter's imply."""
        tally = Tally()
        messages = self.answer.messages
        place = {number: at for at, number in enumerate(messages)}
        theirs = Reach(
            len(place), [(place[d], place[n]) for n, m in messages.items() for d in m.data_deps]
        )
        for src, dst, kind in self.ours.deps:
            one, other = place.get(self.node.get(src, -1)), place.get(self.node.get(dst, -1))
            known = one is not None and other is not None
            exact = known and theirs.leads(one, other)
            rule = _KIND_RULES.get(kind, "") if self._holds(src, dst, kind) else ""
            names = self.ours.values["name"]
            tally.add(exact=exact, rule=rule, detail=f"{kind}: {names[src]} -> {names[dst]}")
        return tally

    def _holds(self, src: int, dst: int, kind: str) -> bool:
        """Tell whether the recorded times and threads show what a dependency says."""
        start, end, values = self.ours.start, self.ours.end, self.ours.values

        def same(*columns: str) -> bool:
            return all(values[column][src] == values[column][dst] for column in columns)

        if kind == "call":
            return same("thread") and start[src] <= start[dst] <= end[src]
        if kind == "order":
            return same("thread") and start[src] <= start[dst]
        if kind == "launch":
            linked = same("correlation") if not values["is_cpu"][dst] else not same("thread")
            return linked and start[src] <= start[dst]
        if kind == "stream":
            return same("device", "stream") and start[src] <= start[dst]
        if kind == "sync":
            return end[src] <= end[dst] and not (same("thread") and values["is_cpu"][src])
        if kind == "event":
            return not same("device", "stream") and end[src] <= start[dst]
        if kind == "thread":
            return not same("thread") and end[src] <= start[dst]
        if kind == "comm":
            return same("group") and start[src] <= start[dst]
        return kind in ("raw", "war", "waw") and start[src] <= start[dst]


def compare(golden: Path, host: Path, device: Path, checks: Checks) -> None:
    """Make all comparisons with one golden folder."""
    comparison = Comparison(Answer(golden), host, device)
    tallies = {
        "operations": comparison.operations(),
        "starts": comparison.starts(),
        "durations": comparison.durations(),
        "exclusive durations": comparison.exclusive(),
        "threads": comparison.threads(),
        "streams": comparison.streams(),
        "sequence numbers": comparison.sequence_numbers(),
        "parents of host operations": comparison.parents(device=False),
        "parents of device work": comparison.parents(device=True),
        "converter's nodes": comparison.converted_nodes(),
        "kinds": comparison.kinds(),
        "converter's durations": comparison.converted_durations(),
        "communication types": comparison.communication("comm_type"),
        "communication bytes": comparison.communication("comm_size"),
        "control dependencies": comparison.control_dependencies(),
        "data dependencies": comparison.data_dependencies(),
        "Nadi's dependencies": comparison.further_dependencies(),
    }
    for what, tally in tallies.items():
        checks.add_tally(f"{golden.name}: {what}", tally)


def check_job(folder: Path, checks: Checks) -> None:
    """Check what must hold of the dependencies of any job."""
    job = nadi.load_job(folder)
    for trace in job.traces:
        name = f"{folder.name} rank {trace.rank}"
        ours = Linked(trace)
        num_vertices = 2 * len(ours.start)
        ordered = len(topological_order(num_vertices, ours.edges()))
        checks.add_many(f"{name}: vertices not on a cycle", ordered, num_vertices)
        if ordered == num_vertices:
            check_streams(name, ours, checks)
            check_collectives(name, ours, checks)
    graph = nadi.build_graph(job)
    edges = [
        (int(source), vertex)
        for vertex, (begin, end) in enumerate(pairwise(graph.in_ptr))
        for source in graph.in_src[begin:end]
    ]
    ordered = len(topological_order(graph.num_vertices, edges))
    checks.add_many(f"{folder.name}: moments not on a cycle", ordered, graph.num_vertices)


def check_streams(name: str, ours: Linked, checks: Checks) -> None:
    """All device work but the first of each stream has a predecessor there."""
    values = ours.values
    streams: dict[tuple[int, int], list[int]] = {}
    for row, category in enumerate(values["category"]):
        if category in ("kernel", "memcpy", "memset"):
            streams.setdefault((values["device"][row], values["stream"][row]), []).append(row)
    before = {(src, dst) for src, dst, kind in ours.deps if kind == "stream"}
    for rows in streams.values():
        rows.sort(key=lambda row: (ours.start[row], row))
    pairs = [pair for rows in streams.values() for pair in pairwise(rows)]
    if pairs:
        checks.add_many(
            f"{name}: device work follows on its stream", sum(pair in before for pair in pairs),
            len(pairs), f"{len(streams)} streams",
        )  # fmt: skip


def check_collectives(name: str, ours: Linked, checks: Checks) -> None:
    """Every collective comes after the one before it in its process group."""
    values = ours.values
    rows = [row for row, kind in enumerate(values["kind"]) if kind == "COMM_COLL"]
    groups: dict[int, list[int]] = {}
    for row in sorted(rows, key=lambda row: (values["rf_id"][row], ours.start[row])):
        groups.setdefault(values["group"][row], []).append(row)
    pairs = [pair for members in groups.values() for pair in pairwise(members)]
    if pairs:
        ordered = sum(ours.reach.leads(2 * src, 2 * dst) for src, dst in pairs)
        checks.add_many(
            f"{name}: collectives are ordered in their group", ordered, len(pairs),
            f"{len(groups)} groups",
        )  # fmt: skip


def main() -> None:
    checks = Checks()
    for argument in sys.argv[1:] or DEFAULT:
        golden, _, pair = argument.partition("=")
        if pair:
            host, _, device = pair.partition(",")
            compare(Path(golden), Path(host), Path(device), checks)
        else:
            check_job(Path(argument), checks)
    checks.finish()


if __name__ == "__main__":
    main()
