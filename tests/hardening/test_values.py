"""Numbers that are too large, none at all, or not what a setting is."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time
from typing import Any

import pytest

import nadi
from nadi.models import row_traces
from nadi.systems import Compute, Dimension, Network, System, astra_sim_system
from nadi.units import parse_bytes, parse_ns, parse_operations, parse_rate
from tests.conftest import PairWriter
from tests.fuzz.corpus import device_object
from tests.simulator.cases import trace_of

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
SYSTEM = {"preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"]}


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("system", {"endpoint-delay": "10ns"}, "system: $.endpoint-delay: expected a number, got str"),
        ("system", {"L": []}, "system: $.L: expected a number, got array"),
        ("system", {"all-reduce-implementation": "ring"}, "$.all-reduce-implementation: expected array"),
        ("system", {"all-reduce-implementation": [3]}, "$.all-reduce-implementation[0]: expected str"),
        ("system", {"active-chunks-per-dimension": 0}, "$.active-chunks-per-dimension: expected int >= 1"),
        ("system", {"peak-perf": -1}, "system: $.peak-perf: expected int >= 0"),
        ("system", {"local-mem-bw": 1e300}, "system: $.local-mem-bw: expected float <= "),
        ("system", {"scheduling-policy": {}}, "system: $.scheduling-policy: expected str, got object"),
        ("network", {"bandwidth": ["tbd"]}, "network: $.bandwidth[0]: expected a number, got str"),
        ("network", {"bandwidth": [0]}, "network: $.bandwidth[0]: expected int >= 1"),
        ("network", {"npus_count": [float("nan")]}, "network: $.npus_count[0]: expected float >= 1"),
        ("network", {"latency": [float("inf")]}, "network: $.latency[0]: expected float <= "),
        ("network", {"latency": 5}, "network: $.latency: expected array, got int"),
        ("memory", {"remote-mem-bw": "4"}, ""),  # a number in quotes has always been taken
        ("memory", {"remote-mem-bw": "x"}, "memory: $.remote-mem-bw: expected a number, got str"),
        ("memory", {"memory-type": 5}, "memory: $.memory-type: expected str, got int"),
        ("groups", {"1": 5}, "groups: $.1: expected array, got int"),
        ("groups", {"1": [0, "a"]}, "groups: $.1[1]: expected int, got str"),
    ],
)  # fmt: skip
def test_configurations_of_astra_sim(file: str, changes: dict[str, Any], message: str) -> None:
    given: dict[str, dict[str, Any]] = {
        "network": NETWORK, "system": SYSTEM, "memory": {}, "groups": {},
    }  # fmt: skip
    given[file] = given[file] | changes
    if not message:
        assert astra_sim_system(*given.values())
        return
    with pytest.raises(nadi.errors.FormatError) as caught:
        astra_sim_system(*given.values())
    assert message in str(caught.value)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(nadi.errors.FormatError, match="preferred-dataset-splits"):
        astra_sim_system(NETWORK, {})


@pytest.mark.parametrize("parse", [parse_ns, parse_rate, parse_bytes, parse_operations])
@pytest.mark.parametrize(
    "text",
    ["1e999 GB", "1e999 GB/s", "1e999 s", "1e999 FLOP/s", "1e19 B", "1e10 s", "9" * 9999 + " B"],
)
def test_quantities_beyond_what_can_be(parse: Any, text: str) -> None:
    if (parse, text) in ((parse_rate, "1e10 s"), (parse_operations, "1e19 B")):
        return
    with pytest.raises(ValueError, match=r"is not a|exceeds") as caught:
        parse(text)
    assert len(str(caught.value)) < 200


def test_a_long_text_that_is_no_quantity_is_gone_through_once() -> None:
    """A pattern that tries where digits end and blanks begin would not come to an end here."""
    text = "1" * 2_000_000 + " " * 2_000_000 + "x y"
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.fixture
def digraph(pair: PairWriter) -> Any:
    pair.op("aten::mm", 0, 10)
    pair.op("aten::add", 20, 10)
    return nadi.to_networkx(nadi.build_graph(nadi.load_job(*pair.write())))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weight", 2**63, "has weight 9223372036854775808; give whole nanoseconds"),
        ("weight", float("nan"), "has weight nan; give whole nanoseconds"),
        ("weight", 2**62 + 1, "add up to more than 2^62 ns"),
        ("weight", None, "has weight None"),
        ("op", 2, "has op 2; give an operation, 0 to 1, or -1 for none"),
        ("op", -2, "has op -2"),
        ("op", float("nan"), "has op nan"),
        ("kind", [], "has kind []"),
    ],
)
def test_edges_that_cannot_be(digraph: Any, name: str, value: Any, message: str) -> None:
    edge = next(iter(digraph.edges))
    digraph.edges[edge][name] = value
    with pytest.raises(nadi.errors.UsageError) as caught:
        nadi.from_networkx(digraph)
    assert message in str(caught.value)


@pytest.mark.parametrize("delay", [-1, 2**63, float("nan"), "5"])
def test_delays_that_cannot_be(digraph: Any, delay: Any) -> None:
    digraph.add_node("new", delay=delay)
    with pytest.raises(
        nadi.errors.UsageError, match=r"has delay .*; give whole nanoseconds, 0 or more"
    ):
        nadi.from_networkx(digraph)


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, 2**62, "2"])
def test_hta_takes_any_process(number: int | str, tmp_path: Path) -> None:
    device = device_object()
    usual = _hta(device, tmp_path)
    for event in device["traceEvents"]:
        event["pid"] = number if event.get("pid") == 12611 else event.get("pid", 0)
    assert _hta(device, tmp_path) == usual


def _hta(device: Any, folder: Path) -> Any:
    path = folder / "device.json"
    path.write_text(json.dumps(device))
    try:
        return nadi.analyses.hta_critical_path(nadi.read(path)).path.to_dicts()
    except nadi.NadiError as error:
        return str(error).partition("; ")[2]


@pytest.mark.parametrize("slots", ["device", "astra-sim"])
@pytest.mark.parametrize("congestion", [False, True])
def test_times_that_no_number_holds_are_told_as_such(slots: Any, congestion: bool) -> None:
    """They were taken for a receive that is missing, once the sum was below 0."""
    century = 36 * 365 * 86_400 * 1_000_000  # us, or a third of one
    nodes: list[dict[str, Any]] = [
        {"id": k, "type": "COMP_NODE", "is_cpu_op": False, "duration_micros": century,
         "data_deps": [k - 1] if k else []}
        for k in range(9)
    ]  # fmt: skip
    system = System(Network((Dimension("ring", 2, 1.0, 1.0),), congestion), Compute(), slots=slots)
    with pytest.raises(nadi.errors.UsageError, match="exceeds 36 years"):
        nadi.simulate([trace_of(nodes)] * 2, system)
    assert nadi.simulate([trace_of(nodes[:1])] * 2, system).cycles.max() == 1000 * century


def test_a_message_that_takes_centuries() -> None:
    nodes: list[dict[str, Any]] = [
        {
            "id": 0,
            "type": "COMM_COLL_NODE",
            "is_cpu_op": False,
            "comm_type": 0,
            "comm_size": 1 << 50,
        }
    ]
    system = System(Network((Dimension("ring", 2, 1e-6, 1.0),)), Compute())
    with pytest.raises(nadi.errors.UsageError, match="exceeds 36 years"):
        nadi.simulate([trace_of(nodes)] * 2, system)


def test_the_time_of_many_layers_is_proportional_to_their_number() -> None:
    """It grew with their square: a model's file of 300 bytes kept a processor for an hour."""

    def seconds(layers: int) -> float:
        small = nadi.models.LanguageModel(layers=layers, hidden=64, heads=4, ffn=128, vocab=512)
        begin = process_time()
        nadi.models.llm_job(small, sequence=64, tp=2)
        return process_time() - begin

    seconds(8)
    # ten times as many take ten times as long now, and took 53 times as long
    assert seconds(3000) < 35 * min(seconds(300) for _ in range(3))


@pytest.mark.parametrize("plan", [{"global_batch": 50}, {"global_batch": 50, "pp": 2}])
def test_operations_are_counted_before_they_are_generated(
    plan: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of a million micro-batches took all memory there is."""
    made = nadi.llm_job("gpt3-1.3b", **plan)
    monkeypatch.setattr(row_traces, "available_memory", lambda: 10 << 20)
    assert made.num_nodes * row_traces._BYTES_OF_NODE > 10 << 20
    with pytest.raises(nadi.errors.UsageError, match=r"operations or more, which need .* are free"):
        nadi.llm_job("gpt3-1.3b", **plan)
