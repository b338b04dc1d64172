"""What Chakra's linker and converter make of a pair of traces, against what Nadi makes of it.

Usage: python verification/chakra_link.py [GOLDEN_FOLDER=HOST,DEVICE...]

A golden folder holds ``et_plus.json.gz``, the linker's output for the pair, and
``out.et.gz``, the converter's output for that. Compared one by one: operations, kinds,
starts, durations, exclusive durations, threads, streams, sequence numbers, parents,
communication, the converter's nodes, control and data dependencies, and the dependencies
that only Nadi has. A time is equal if it is the same to the nanosecond, after rounding; a
data dependency if Nadi's dependencies imply it.

What differs is counted under a rule (``RULES``), and only where a computation from the
recording shows that this very difference comes from that rule, most often by working out
the peer's figure by the peer's own rule (``_chakra.py``). Else it is not explained, and the
program fails.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from _chakra import COLLECTIVE_TYPES, NODE_TYPES, THREAD_NODE, Answer, Event, exclusive_by_rule
from _chakra_dependencies import Dependencies
from _chakra_pair import Pair
from _report import SHARED, Checks, Tally

GOLDEN, TRACES = SHARED / "golden" / "chakra", SHARED / "traces"
DEFAULT = tuple(
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
)  # fmt: skip

RULES = {
    "asynchronous": "work on another thread does not block the thread that issued it; the "
        "converter chains both by id",
    "beside-thread": "a send or receive of gloo goes on beside the thread that issued it, if that "
        "works meanwhile",
    "call": "an operation starts and ends inside the one that calls it",
    "calls-are-nodes": "runtime calls are operations with their own time; the linker drops them "
        "and leaves their time with the operator",
    "collective": "a collective is issued after the previous one of its process group",
    "equal-starts": "an enclosing operation does not count the time of a nested one that starts "
        "at the same time; the linker looks at the shorter first, and the longer keeps the time",
    "event": "device work follows the work of another stream that its stream waited for",
    "float": "times are whole ns; the linker subtracts float64 us and is off by more than half a "
        "ns",
    "ended-parent": "a parent runs when the operation that it calls begins; the host trace names "
        "one that does not, and the linker takes it",
    "gap-contradicted": "a thread that pauses does not wait for work that ends after it went on; "
        "the linker's gap rule takes the work that starts last",
    "gap-last": "the work that ends last ends a pause, not the one that starts last",
    "gap-late": "a thread does not wait for work that ended over 500 us before it went on",
    "gap-launched": "gloo's work waits for the call that issued it, not for the work that starts "
        "last",
    "gloo": "gloo's work is communication; the converter knows only NCCL's kernels",
    "hand-over": "a thread goes on when work on another thread has ended",
    "in-background": "work that outlives the operation in which it began does not block its "
        "thread",
    "labels-are-nodes": "device annotations, Python functions and synchronization events are "
        "kept",
    "later-parent": "a parent exists before the operation it calls; the host trace names one "
        "with a higher id, and the linker takes it",
    "launch": "work starts after the call that launched it has begun",
    "memsets-are-nodes": "memsets are device work; the linker drops them",
    "metadata": "thread nodes are metadata; the converter knows only set-up nodes",
    "no-dependencies": "every node is kept; the converter drops nodes without dependencies",
    "optimizer-step": "an optimizer step keeps its self time; the converter writes 0",
    "order": "operations of one thread run one after the other, including runtime calls",
    "outlives": "time belongs to the operation that began last, even if it outlives another one; "
        "the linker subtracts only operations that end in time",
    "profiler-step": "a profiler step has a time; the linker leaves it out",
    "root": "the process has no parent; the linker makes it its own parent",
    "sequence": "sequence numbers that only the device trace has are kept",
    "stream": "device work follows its predecessor on its stream",
    "sync": "a call returns after the work it waited for has ended",
    "tensor": "an operation uses memory after the previous user of that memory",
    "thread": "the thread is that of the device trace; the linker keeps that of the host trace, "
        "in which gloo's work has the thread of its launcher",
    "truncated": "durations are in ns; the converter truncates them to whole us",
    "untimed": "process, thread and set-up nodes are no work: they have no timestamps, and what "
        "comes after them follows the work before them",
}  # fmt: skip
"""What Nadi does where it differs, and what the peer does; ``docs/linking.md`` has them too."""

_RULE_OF_CATEGORY = {
    "cuda_runtime": "calls-are-nodes", "cuda_driver": "calls-are-nodes",
    "gpu_memset": "memsets-are-nodes", "gpu_user_annotation": "labels-are-nodes",
    "python_function": "labels-are-nodes", "cuda_sync": "labels-are-nodes",
}  # fmt: skip


def operations(pair: Pair) -> Tally:
    """Compare what is there: host operations by id and name, device work by name and time."""
    tally, values, answer = Tally(), pair.ours.values, pair.answer
    for number, node in answer.nodes.items():
        row = pair.row.get(number, -1)
        same = row >= 0 and node["name"] == values["name"][row]
        if same and not answer.is_device(number):
            # process and thread nodes have no function: 0 there, none here
            same = answer.attribute(number, "rf_id") == max(values["rf_id"][row], 0)
        tally.add(exact=same, detail=f"node {number} ({node['name'][:50]}) is not there")
    ids = {answer.attribute(number, "rf_id") for number in answer.nodes}
    for row in set(range(len(pair.ours.start))) - set(pair.node):
        event = pair.event(row)
        rule = _RULE_OF_CATEGORY.get(event.category, "") if event else ""
        known = values["rf_id"][row] in ids  # an operation of the linker's: it should be found
        name = values["name"][row][:50]
        tally.add(rule="" if known else rule, detail=f"row {row} ({name}) is only Nadi's")
    return tally


def kinds(pair: Pair) -> Tally:
    """Compare the converter's types of nodes."""
    tally = Tally()
    for number, message in pair.answer.messages.items():
        row = pair.row[number]
        theirs = NODE_TYPES[message.type].removesuffix("_NODE")
        ours = pair.ours.values["kind"][row]
        rule = ""
        if theirs == "COMP" and ours == "METADATA" and message.name == THREAD_NODE:
            rule = "metadata"
        elif theirs == "COMP" and ours.startswith("COMM_") and _is_gloo(pair.event(row)):
            rule = "gloo"
        tally.add(exact=theirs == ours, rule=rule, detail=pair.say(number, theirs, ours))
    return tally


def _is_gloo(event: Event | None) -> bool:
    return event is not None and event.name.startswith("gloo:")


def times(pair: Pair, key: str, ours: Callable[[int], int]) -> Tally:
    """Compare a node's decimal us with a row's ns, digit by digit."""
    tally = Tally()
    for number, node in pair.answer.nodes.items():
        row, theirs = pair.row[number], node.get(key)
        exact = theirs is not None and Decimal(repr(theirs)) * 1000 == ours(row)
        rule = pair.rule_without_time(number) if theirs is None else ""
        tally.add(exact=exact, rule=rule, detail=pair.say(number, theirs, ours(row)))
    return tally


def exclusive_rules(pair: Pair) -> dict[int, str]:
    """Name for each node the rule by which exclusive durations may differ, or ''.

    There is one only if the linker's figure is what its rule gives, bit by bit, and Nadi's
    is, with the time of the runtime calls within, the time in which it is the innermost.
    """
    rules = {}
    by_rule = exclusive_by_rule(pair.recording)
    calls = time_of_calls(pair)
    for number, node in pair.answer.nodes.items():
        row, theirs = pair.row[number], node.get("exclusive_dur")
        ours = pair.ours.values["exclusive"][row]
        found = by_rule.get(pair.ours.values["event"][row])
        if theirs is None:
            rules[number] = pair.rule_without_time(number)
        elif found is None or found.peer_us != theirs or ours + calls.get(row, 0) != found.right:
            rules[number] = ""
        elif found.repaired != found.right:
            rules[number] = "outlives"
        elif found.peer != found.right:
            rules[number] = "equal-starts"
        else:
            rules[number] = "calls-are-nodes" if ours != found.right else "float"
    return rules


def time_of_calls(pair: Pair) -> dict[int, int]:
    """Add up the exclusive time of what the linker does not know, by its nearest host op."""
    values = pair.ours.values
    found: dict[int, int] = {}
    for row in range(len(pair.ours.start)):
        if pair.event(row) is None or row in pair.node or not values["is_cpu"][row]:
            continue
        owner = next((a for a in pair.ours.ancestors(row) if a in pair.node), -1)
        found[owner] = found.get(owner, 0) + values["exclusive"][row]
    return found


def exclusive(pair: Pair, rules: dict[int, str]) -> Tally:
    """Compare exclusive durations."""
    tally = Tally()
    for number, node in pair.answer.nodes.items():
        theirs, ours = node.get("exclusive_dur"), pair.ours.values["exclusive"][pair.row[number]]
        exact = theirs is not None and round(Decimal(repr(theirs)) * 1000) == ours
        tally.add(exact=exact, rule=rules[number], detail=pair.say(number, theirs, ours))
    return tally


def converted_durations(pair: Pair, rules: dict[int, str]) -> Tally:
    """Compare the converter's durations, which are the linker's exclusive ones in us."""
    tally = Tally()
    for number, message in pair.answer.messages.items():
        theirs, ours = message.duration_micros, pair.ours.values["exclusive"][pair.row[number]]
        linked = pair.answer.nodes[number].get("exclusive_dur")
        if linked is None:
            rule = pair.rule_without_time(number) if theirs == 0 else ""
        elif "Optimizer.step" in message.name and theirs == 0:
            rule = "optimizer-step"
        elif int(linked) != theirs:
            rule = ""
        else:
            rule = "truncated" if ours // 1000 == theirs else rules[number]
        exact = linked is not None and ours == theirs * 1000
        tally.add(exact=exact, rule=rule, detail=pair.say(number, theirs, ours))
    return tally


def threads(pair: Pair) -> Tally:
    """Compare threads: the host trace counts them from 1, the device trace has their real ids."""
    tally, values, answer = Tally(), pair.ours.values, pair.answer
    host = [number for number in pair.row if not answer.is_device(number)]
    counts: dict[int, Counter[int]] = {}
    for number in host:
        if not pair.is_untimed(number):
            of_one = counts.setdefault(answer.attribute(number, "tid"), Counter())
            of_one[values["thread"][pair.row[number]]] += 1
    meant = {tid: of_one.most_common(1)[0][0] for tid, of_one in counts.items()}
    for number in host:
        ours, theirs = values["thread"][pair.row[number]], answer.attribute(number, "tid")
        event = pair.event(pair.row[number])
        recorded = event is not None and event.thread == ours
        rule = "thread" if recorded and _is_gloo(event) else ""
        if event is not None and event.name in ("gloo:send", "gloo:recv") and not recorded:
            rule = "beside-thread" if event.thread == meant[theirs] else ""
        if pair.is_untimed(number):
            rule = "untimed" if ours < 0 else ""
        tally.add(
            exact=recorded and meant[theirs] == ours, rule=rule,
            detail=pair.say(number, theirs, ours),
        )  # fmt: skip
    return tally


def sequence_numbers(pair: Pair) -> Tally:
    """Compare autograd's numbers of host operations."""
    tally = Tally()
    for number, row in pair.row.items():
        if not pair.answer.is_device(number):
            theirs = pair.answer.attribute(number, "seq_id")
            ours, event = pair.ours.values["sequence"][row], pair.event(row)
            recorded = event.args.get("Sequence number", -1) if event else -1
            rule = "sequence" if theirs == -1 and ours == recorded else ""
            tally.add(exact=theirs == ours, rule=rule, detail=pair.say(number, theirs, ours))
    return tally


def streams(pair: Pair) -> Tally:
    """Compare the streams of device work."""
    tally = Tally()
    for number, row in pair.row.items():
        if pair.answer.is_device(number):
            theirs, ours = pair.answer.nodes[number]["stream"], pair.ours.values["stream"][row]
            tally.add(exact=theirs == ours, detail=pair.say(number, theirs, ours))
    return tally


def has_ended(pair: Pair, parent: int, number: int) -> bool:
    """Tell whether an operation does not run when another one, said to be in it, begins."""
    if parent not in pair.row:
        return False
    outer, begin = pair.row[parent], pair.ours.start[pair.row[number]]
    return not pair.ours.start[outer] <= begin <= pair.ours.end[outer]


def parents(pair: Pair, *, of_device_work: bool) -> Tally:
    """Compare what encloses an operation, or has launched it."""
    tally = Tally()
    for number, row in pair.row.items():
        if pair.answer.is_device(number) != of_device_work:
            continue
        theirs = pair.answer.nodes[number]["ctrl_deps"]
        ours = pair.node.get(pair.ours.values["parent"][row], -1)
        rule = ""
        if ours < 0:
            rule = "root" if theirs == number else "later-parent" if theirs > number else ""
        if not rule and has_ended(pair, theirs, number):
            rule = "ended-parent"
        tally.add(exact=theirs == ours, rule=rule, detail=pair.say(number, theirs, ours))
    return tally


def control_dependencies(pair: Pair) -> Tally:
    """Compare the converter's control dependencies, which are parents."""
    tally = Tally()
    for number, message in pair.answer.messages.items():
        theirs = list(message.ctrl_deps)
        parent = pair.node.get(pair.ours.values["parent"][pair.row[number]], -1)
        ours = [parent] if parent >= 0 else []
        rule = "ended-parent" if theirs and has_ended(pair, theirs[0], number) else ""
        tally.add(exact=theirs == ours, rule=rule, detail=pair.say(number, theirs, ours))
    return tally


def converted_nodes(pair: Pair) -> Tally:
    """Compare which nodes are there at all: the converter drops some."""
    tally, answer = Tally(), pair.answer
    needed = {dep for message in answer.messages.values() for dep in message.data_deps}
    for number in answer.nodes:
        lonely = number not in needed and number not in answer.before_on_thread
        rule = "no-dependencies" if lonely and not answer.is_device(number) else ""
        detail = f"node {number} is not in the converter's file"
        tally.add(exact=number in answer.messages, rule=rule, detail=detail)
    return tally


def communication(pair: Pair, attribute: str, ours_of: Callable[[int], Any]) -> Tally:
    """Compare an attribute of what the converter knows as communication."""
    tally = Tally()
    for number in pair.answer.messages:
        attributes = pair.answer.message_attributes(number)
        if attribute in attributes:
            theirs, ours = attributes[attribute], ours_of(pair.row[number])
            if attribute == "comm_type":
                theirs = COLLECTIVE_TYPES[theirs].lower()
            tally.add(exact=theirs == ours, detail=pair.say(number, theirs, ours))
    return tally


def compare(pair: Pair) -> dict[str, Tally]:
    """Make all comparisons with one golden answer."""
    ours, origin = pair.ours, pair.recording.origin
    rules, dependencies = exclusive_rules(pair), Dependencies(pair)
    return {
        "operations": operations(pair),
        "starts": times(pair, "ts", lambda row: ours.start[row] - origin),
        "durations": times(pair, "inclusive_dur", ours.values["duration"].__getitem__),
        "exclusive durations": exclusive(pair, rules),
        "threads": threads(pair),
        "streams": streams(pair),
        "sequence numbers": sequence_numbers(pair),
        "parents of host operations": parents(pair, of_device_work=False),
        "parents of device work": parents(pair, of_device_work=True),
        "converter's nodes": converted_nodes(pair),
        "kinds": kinds(pair),
        "converter's durations": converted_durations(pair, rules),
        "communication types": communication(
            pair, "comm_type", ours.values["comm_type"].__getitem__
        ),
        "communication bytes": communication(
            pair, "comm_size", ours.values["comm_bytes"].__getitem__
        ),
        "control dependencies": control_dependencies(pair),
        "data dependencies": dependencies.theirs(),
        "Nadi's dependencies": dependencies.further(),
    }


def main() -> None:
    checks = Checks()
    met: Counter[str] = Counter()
    for argument in sys.argv[1:] or DEFAULT:
        golden, _, files = argument.partition("=")
        host, _, device = files.partition(",")
        pair = Pair(Answer(Path(golden)), Path(host), Path(device))
        for what, tally in compare(pair).items():
            checks.add_tally(f"{Path(golden).name}: {what}", tally)
            met += tally.rules
    print("\nrules:")
    for rule, count in sorted(met.items()):
        print(f"{count:8} {rule}: {RULES[rule]}")
    checks.finish()


if __name__ == "__main__":
    main()
