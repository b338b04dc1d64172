"""The comparison with Chakra's linker explains what it should, and notices what it must."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import chakra_link
import pytest
from _chakra import Answer
from _chakra_pair import Pair
from _report import Tally

from tests.amounts import some
from tests.conftest import NOT_HERE, PairWriter
from tests.verification.golden import write_golden, write_pair


@pytest.fixture
def small(pair: PairWriter, tmp_path: Path) -> Pair:
    return Pair(Answer(write_golden(tmp_path / "golden")), *write_pair(pair))


@pytest.fixture(scope="module")
def recorded() -> Pair:
    golden = chakra_link.GOLDEN / "torch213_ddp4_r1"
    if not golden.is_dir():
        pytest.skip(NOT_HERE)
    folder = chakra_link.TRACES / "cpu_ddp4"
    return Pair(Answer(golden), folder / "host_1.json.gz", folder / "device_1.json.gz")


def unexplained(tallies: dict[str, Tally]) -> dict[str, list[str]]:
    return {what: tally.unexplained for what, tally in tallies.items() if tally.unexplained}


def test_every_difference_of_a_small_pair_has_its_rule(small: Pair) -> None:
    tallies = chakra_link.compare(small)
    assert unexplained(tallies) == {}
    assert {what: dict(tally.rules) for what, tally in tallies.items() if tally.rules} == {
        "operations": {"calls-are-nodes": 2, "memsets-are-nodes": 1},
        "starts": {"untimed": 2},
        "durations": {"untimed": 2},
        # outer, which starts with inner; aten::mm, which calls the runtime; process and thread
        "exclusive durations": {"equal-starts": 1, "calls-are-nodes": 1, "untimed": 2},
        "threads": {"untimed": 2},
        "parents of host operations": {"root": 1},
        "converter's nodes": {"no-dependencies": 1},
        "kinds": {"metadata": 1},
        "converter's durations": {"equal-starts": 1, "calls-are-nodes": 1, "untimed": 1},
        "data dependencies": {"untimed": 1},
        "Nadi's dependencies": {"call": 2, "launch": 2, "order": 1, "stream": 1},
    }


def test_a_recorded_pair_is_explained(recorded: Pair) -> None:
    assert unexplained(chakra_link.compare(recorded)) == {}


def first(pair: Pair, name: str) -> int:
    return next(n for n, node in pair.answer.nodes.items() if node["name"].startswith(name))


def late_operator(pair: Pair) -> int:
    return max(n for n, node in pair.answer.nodes.items() if node["name"] == "aten::empty")


_MUTATIONS: dict[str, tuple[Callable[[Pair, pytest.MonkeyPatch], None], set[str]]] = {}


def mutation(*noticed: str) -> Callable[[Callable[[Pair, pytest.MonkeyPatch], None]], None]:
    def register(mutate: Callable[[Pair, pytest.MonkeyPatch], None]) -> None:
        _MUTATIONS[mutate.__name__] = mutate, set(noticed)

    return register


def change(pair: Pair, patch: pytest.MonkeyPatch, column: str, row: int, value: object) -> None:
    changed = list(pair.ours.values[column])
    changed[row] = value
    patch.setitem(pair.ours.values, column, changed)


@mutation("exclusive durations", "converter's durations")
def another_exclusive_time(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    row = pair.row[late_operator(pair)]
    change(pair, patch, "exclusive", row, pair.ours.values["exclusive"][row] + 2000)


@mutation("exclusive durations", "converter's durations")
def another_time_of_the_peer(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    node = pair.answer.nodes[late_operator(pair)]
    patch.setitem(node, "exclusive_dur", node["exclusive_dur"] + 2)


@mutation("durations")
def a_duration_one_ns_longer(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    row = pair.row[late_operator(pair)]
    change(pair, patch, "duration", row, pair.ours.values["duration"][row] + 1)


@mutation("parents of host operations", "control dependencies")
def another_parent(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    row = pair.row[late_operator(pair)]
    change(pair, patch, "parent", row, row - 1)


@mutation("operations")
def another_name(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    change(pair, patch, "name", pair.row[late_operator(pair)], "aten::full")


@mutation("kinds")
def an_operator_as_communication(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    change(pair, patch, "kind", pair.row[late_operator(pair)], "COMM_COLL")


@mutation("threads", "data dependencies")
def another_thread(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    row = pair.row[late_operator(pair)]
    change(pair, patch, "thread", row, 5)
    patch.setattr(pair.ours, "deps", [dep for dep in pair.ours.deps if row not in dep[:2]])


@mutation("sequence numbers")
def another_sequence_number(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    change(pair, patch, "sequence", pair.row[late_operator(pair)], 3)


@mutation("data dependencies")
def no_order_on_threads(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pair.ours, "deps", [dep for dep in pair.ours.deps if dep[2] != "order"])


@mutation("data dependencies")
def no_launches_of_gloo(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pair.ours, "deps", [dep for dep in pair.ours.deps if dep[2] != "launch"])


@mutation("Nadi's dependencies")
def a_wait_for_what_comes_later(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    src, dst, _ = next(dep for dep in pair.ours.deps if dep[2] == "thread")
    patch.setattr(pair.ours, "deps", [*pair.ours.deps, (dst, src, "thread")])


@mutation("data dependencies")
def a_dependency_of_the_peer_by_no_rule(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    number = first(pair, "aten::embedding")
    pair.answer.messages[number].data_deps.append(late_operator(pair))


@pytest.mark.parametrize("name", some(_MUTATIONS))
def test_what_is_wrong_is_noticed(recorded: Pair, name: str) -> None:
    mutate, noticed = _MUTATIONS[name]
    number = first(recorded, "aten::embedding")
    data_deps = list(recorded.answer.messages[number].data_deps)
    with pytest.MonkeyPatch.context() as patch:
        mutate(recorded, patch)
        forget_what_is_derived(recorded)
        found = unexplained(chakra_link.compare(recorded))
    recorded.answer.messages[number].data_deps[:] = data_deps
    forget_what_is_derived(recorded)
    assert noticed <= set(found)


def forget_what_is_derived(pair: Pair) -> None:
    for name in ("reach", "waits"):
        pair.ours.__dict__.pop(name, None)


def test_rules_are_those_of_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "linking.md").read_text()
    table = page.split("## Differences from Chakra's linker", 1)[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \|", table, re.MULTILINE)
    assert dict(rows) == chakra_link.RULES
