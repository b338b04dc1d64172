"""Jobs of networks: their work, collectives and order, against plain counts and laws."""

from __future__ import annotations

from itertools import product
from math import prod

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import UsageError
from nadi.models import NetworkPlan, NeuralNetwork, network_job, network_statistics
from nadi.models.networks.layer_kinds import Conv, EmbeddingBag, Feature
from nadi.models.networks.layer_work import StepSize, work_of_layer
from nadi.models.networks.network_file import network_from
from nadi.models.networks.network_plan import table_shares
from nadi.trace.trace import Job, Trace
from nadi.trace.validate import validate_trace
from tests.amounts import examples

SETTINGS = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck)
)
ONE = StepSize(1, 2, 4, "bfloat16")
TABLES = {"kind": "embedding_bag", "name": "tables", "rows": [50, 9, 4], "width": 4,
          "lookups": [1, 2, 5], "spread": True}  # fmt: skip
RECOMMENDATION = network_from(
    {
        "inputs": {"dense": [13]},
        "layers": [
            TABLES,
            {"kind": "linear", "name": "bottom", "from": "dense", "out": 4},
            {"kind": "interaction", "from": ["bottom", "tables"]},
            {"kind": "linear", "name": "top", "out": 1},
            {"kind": "loss"},
        ],
    }
)


@st.composite
def networks(draw: st.DrawFn) -> NeuralNetwork:
    """Draw a small network of images, with a residual connection and tables of its own."""
    channels = 4
    layers: list[dict] = [{"kind": "conv", "out": channels, "kernel": 3}]
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["conv", "depthwise", "norm", "relu", "add", "up"]))
        layers.append({
            "conv": {"kind": "conv", "out": channels, "kernel": draw(st.integers(1, 3)),
                     "padding": 1, "transposed": draw(st.booleans())},
            "depthwise": {"kind": "conv", "out": channels, "kernel": 3, "groups": channels},
            "norm": {"kind": "norm", "of": draw(st.sampled_from(["batch", "group"]))},
            "relu": {"kind": "activation", "of": "relu"},
            "add": {"block": "residual"},
            "up": {"kind": "upsample"},
        }[kind])  # fmt: skip
    layers += [{"kind": "pool", "of": "average"}, {"kind": "linear", "out": 10}, {"kind": "loss"}]
    inner = [{"kind": "conv", "name": "a", "out": channels, "kernel": 3},
             {"kind": "add", "from": ["a", "input"]}]  # fmt: skip
    return network_from({"inputs": {"image": [3, 6, 6]}, "layers": layers,
                         "blocks": {"residual": {"layers": inner}}})  # fmt: skip


plans = st.builds(
    NetworkPlan, ranks=st.sampled_from([1, 2, 4]), batch=st.integers(1, 4), zero=st.integers(0, 3)
)


def collectives(trace: Trace) -> list[tuple[str, int]]:
    """Return the types and bytes of collectives, in order."""
    columns = pl.col("comm_type").cast(pl.String), pl.col("comm_bytes")
    return trace.nodes.filter(pl.col("kind") == "COMM_COLL").select(columns).rows()


def row_of(job: Job, name: str, rank: int = 0) -> int:
    names = job.traces[rank].nodes["name"].cast(pl.String).to_list()
    return names.index(name)


def waits_for(trace: Trace, later: int, earlier: int) -> bool:
    """Return whether a node waits for another, directly or through others."""
    before: dict[int, list[int]] = {}
    for src, dst in zip(trace.deps["src"], trace.deps["dst"], strict=True):
        before.setdefault(dst, []).append(src)
    found, open_ = set(), [later]
    while open_:
        for one in before.get(open_.pop(), []):
            if one not in found:
                found.add(one)
                open_.append(one)
    return earlier in found


@SETTINGS
@given(networks(), plans)
def test_any_network_gives_a_job_that_runs(network: NeuralNetwork, plan: NetworkPlan) -> None:
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    job = network_job(network, **fields)
    assert len(set(job.traces)) == 1
    assert not validate_trace(job.traces[0]).height
    done = nadi.simulate(job, nadi.load_system("dgx-h100", plan.ranks))
    assert (done.end >= done.start).all()

    count = network.total_parameters
    sent = [one for one in collectives(job.traces[0]) if one[0] != "broadcast"]
    if plan.ranks == 1:
        assert sent == []
        return
    reduction = "all_reduce" if plan.zero == 0 else "reduce_scatter"
    assert sum(size for kind, size in sent if kind == reduction) == 4 * count
    gathered = sum(size for kind, size in sent if kind == "all_gather") * plan.ranks
    times = {0: 0, 1: 1, 2: 1, 3: 2}[plan.zero]
    rounded = sum(kind == "all_gather" for kind, _ in sent) * (plan.ranks - 1)
    assert 2 * times * count <= gathered <= 2 * times * count + rounded


@SETTINGS
@given(networks(), st.integers(1, 3))
def test_a_backward_has_two_products_for_each_of_the_forward(
    network: NeuralNetwork, batch: int
) -> None:
    layers = network_statistics(network, batch=batch).layers
    for row, layer in zip(layers.iter_rows(named=True), network.layers, strict=True):
        if row["kind"] in ("conv", "linear"):
            assert row["forward_flops"] == 2 * batch * row["macs"]
            assert row["backward_flops"] == 2 * row["forward_flops"]
            assert sum(layer.tensors) == layer.parameters
    nodes = network_job(network, batch=batch).traces[0].nodes
    names = nodes["name"].cast(pl.String).to_list()
    # the images need no gradient
    assert "conv.input_gradient" not in names
    assert "conv.weight_gradient" in names


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("groups", "kernel", "stride", "padding"), [
    (1, 3, 1, 0), (2, 3, 2, 0), (4, 2, 1, 0), (1, 1, 2, 0),
])  # fmt: skip
def test_products_of_a_convolution_are_counted_one_by_one(
    transposed: bool, groups: int, kernel: int, stride: int, padding: int
) -> None:
    kind = Conv(8, kernel, stride, padding, groups, transposed=transposed)
    given = Feature((4, 5, 6))
    made = kind.gives([given])
    # every pixel of the smaller image meets every weight of its window once
    small = given if transposed else made
    count = sum(
        1
        for _ in product(range(small.shape[1]), range(small.shape[2]), range(4), range(8),
                         range(kernel), range(kernel))
    ) // groups  # fmt: skip
    work = work_of_layer(kind, [given], made, ONE)
    for one in (work.forward, work.input_gradient, work.weight_gradient):
        assert one is not None
        assert one.flops == 2 * count
        assert not one.shape or 2 * prod(one.shape) == one.flops
    assert bool(work.forward and work.forward.shape) == (groups < 4)


def test_buckets_are_those_of_distributed_data_parallel() -> None:
    # as a recording of two ranks has them
    job = network_job("resnet50", ranks=2, batch=32, dtype="float32")
    assert collectives(job.traces[0]) == [
        ("broadcast", 212_480), ("broadcast", 424), ("all_reduce", 8_196_000),
        ("all_reduce", 31_502_336), ("all_reduce", 26_255_360), ("all_reduce", 26_550_272),
        ("all_reduce", 9_724_160),
    ]  # fmt: skip


def test_gradients_are_reduced_while_the_backward_goes_on() -> None:
    job = network_job("resnet50", ranks=2, batch=1)
    first = row_of(job, "bucket0.gradients.all_reduce")
    last = row_of(job, "conv1.weight_gradient")
    trace = job.traces[0]
    assert not waits_for(trace, last, first)
    assert waits_for(trace, row_of(job, "optimizer"), row_of(job, "bucket4.gradients.all_reduce"))
    assert waits_for(trace, first, row_of(job, "fc.weight_gradient"))


def test_weights_of_zero_3_are_gathered_one_bucket_ahead() -> None:
    job = network_job("resnet50", ranks=2, batch=1, zero=3)
    trace = job.traces[0]
    # the forward needs the last bucket of gradients first
    assert waits_for(trace, row_of(job, "conv1"), row_of(job, "bucket4.weights.all_gather"))
    assert not waits_for(trace, row_of(job, "conv1"), row_of(job, "bucket3.weights.all_gather"))
    # and the next one while it computes
    assert not waits_for(trace, row_of(job, "bucket3.weights.all_gather"), row_of(job, "conv1"))
    assert waits_for(trace, row_of(job, "fc"), row_of(job, "bucket0.weights.all_gather"))


def test_tables_are_exchanged_beside_what_does_not_need_them() -> None:
    job = network_job(RECOMMENDATION, ranks=3, batch=2)
    trace = job.traces[0]
    forward, backward = "tables.all_to_all", "tables.gradients.all_to_all"
    assert waits_for(trace, row_of(job, "tables"), row_of(job, "tables.indices.all_to_all"))
    assert not waits_for(trace, row_of(job, "bottom"), row_of(job, forward))
    assert waits_for(trace, row_of(job, "interaction"), row_of(job, forward))
    assert waits_for(trace, row_of(job, backward), row_of(job, "interaction.input_gradient"))
    assert not waits_for(trace, row_of(job, "bottom.weight_gradient"), row_of(job, backward))
    assert waits_for(trace, row_of(job, "tables.weight_gradient"), row_of(job, backward))
    # each rank gives one column of four of a table for the samples of all, in two bytes
    exchanged = [size for kind, size in collectives(trace) if kind == "all_to_all"]
    assert exchanged == [2 * 8 * 8, 6 * 4 * 2, 6 * 4 * 2]
    nadi.simulate(job, nadi.load_system("dgx-h100", 3))


@SETTINGS
@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(1, 9)), min_size=1, max_size=9),
    st.sampled_from([4, 8]), st.integers(1, 12),
)  # fmt: skip
def test_tables_are_all_placed(tables: list[tuple[int, int]], width: int, ranks: int) -> None:
    kind = EmbeddingBag([rows for rows, _ in tables], width, [looked for _, looked in tables], True)
    assume(len(tables) * width >= ranks)
    shares = table_shares(kind, ranks)
    assert len(shares) == ranks
    assert all(share.parameters for share in shares)
    assert sum(share.parameters for share in shares) == width * sum(rows for rows, _ in tables)
    assert sum(share.columns for share in shares) == width * len(tables)
    assert sum(share.elements for share in shares) == width * sum(looked for _, looked in tables)
    heaviest = max(share.elements + share.columns for share in shares)
    mean = sum(share.elements + share.columns for share in shares) / ranks
    largest = width * max(looked + 1 for _, looked in tables)
    assert heaviest <= mean + largest


def test_shared_weights_have_a_gradient_for_each_use_and_are_reduced_once() -> None:
    layers = [
        {"kind": "linear", "name": "a", "out": 13}, {"kind": "linear", "name": "b", "weights": "a",
                                                    "out": 13}, {"kind": "loss"},
    ]  # fmt: skip
    network = network_from({"inputs": {"x": [13]}, "layers": layers})
    assert network.total_parameters == 13 * 13 + 13
    for zero in (0, 3):
        job = network_job(network, ranks=2, zero=zero)
        trace = job.traces[0]
        reduction = "all_reduce" if zero == 0 else "reduce_scatter"
        sent = [size for kind, size in collectives(trace) if kind == reduction]
        assert sent == [4 * network.total_parameters]
        name = f"bucket0.gradients.{reduction}"
        for use in ("a", "b"):
            assert waits_for(trace, row_of(job, name), row_of(job, f"{use}.weight_gradient"))
    gathered = row_of(job, "bucket0.weights.all_gather")
    assert waits_for(trace, row_of(job, "b.weight_gradient"), gathered)


def test_inference_has_the_forward_alone() -> None:
    job = network_job(RECOMMENDATION, ranks=2, inference=True)
    names = job.traces[0].nodes["name"].cast(pl.String).to_list()
    assert "tables.all_to_all" in names
    assert not any("gradient" in name or name in ("loss", "optimizer") for name in names)
    found = network_statistics(RECOMMENDATION, ranks=2, inference=True)
    assert found.memory["gradients"].sum() == found.memory["optimizer"].sum() == 0


def test_memory_counts_each_tensor_once() -> None:
    layers = [
        {"kind": "linear", "name": "a", "out": 8}, {"kind": "activation", "of": "relu"},
        {"kind": "linear", "name": "b", "out": 8}, {"kind": "add", "from": ["b", "a"]},
    ]  # fmt: skip
    network = network_from({"inputs": {"x": [4]}, "layers": layers})
    memory = network_statistics(network, batch=3).memory.row(0, named=True)
    # the input, and the output of relu, which is the input of b
    assert memory["activations"] == 3 * 2 * (4 + 8)
    assert memory["weights"] == 2 * (4 * 8 + 8 + 8 * 8 + 8)


@pytest.mark.parametrize(("fields", "remedy"), [
    ({"ranks": 13}, "12 or less"),
    ({"inference": True, "zero": 1}, "use 0, or 3"),
    ({"dtype": "float3"}, "torch's name"),
    ({"rank": 1}, "known are ranks, batch"),
    ({"zero": 4}, "use one of 0, 1, 2, 3"),
    ({"batch": 0}, "give another value"),
])  # fmt: skip
def test_a_plan_that_does_not_fit_is_refused(fields: dict, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        network_job(RECOMMENDATION, **fields)
    assert remedy in caught.value.remedy
