"""What corrects NCCL's model: against steps one by one, and laws."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.systems.nccl.measured import MeasuredCollective, measured_times, scaled_table
from nadi.systems.nccl.nccl_estimates import nccl_estimates
from nadi.systems.nccl.nccl_settings import Corrections, NcclSettings
from tests.amounts import examples
from tests.reference.nccl_steps import channels_of, ring_time, tree_time

EIGHT, SIXTEEN = np.arange(8), np.arange(16)


def settings_of(name: str, ranks: int) -> NcclSettings:
    section = nadi.load_system(name, ranks).nccl
    assert section is not None
    return section


def corrected(given: NcclSettings, level: str, **changes: object) -> NcclSettings:
    old = getattr(given, level)
    new = msgspec.structs.replace(old.corrections, **changes)
    return msgspec.structs.replace(given, **{level: msgspec.structs.replace(old, corrections=new)})


@pytest.mark.parametrize("size", [1 << 10, 1 << 15, 1 << 17])
def test_a_small_ring_takes_as_long_as_its_steps(size: int) -> None:
    """With few channels a link is the limit; NCCL's model has all of them carry everything."""
    node = corrected(settings_of("dgx-h100", 8), "node", ramp=0.0, efficiency=1.0)
    found = nccl_estimates(node, "all_reduce", np.array([size]), EIGHT)[0]
    assert found[:2] == ("Ring", "LL")
    channels = channels_of(size, "LL", 8 * 8, 24)
    assert found.channels == channels
    slow = ring_time(size, "LL", 8, 1.9 + 6.6, 0.93 * 0.6, channels, 30.0)
    assert found.time == pytest.approx(slow)


@pytest.mark.parametrize(("collective", "steps"), [("all_gather", 1), ("all_reduce", 2)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_has_a_step_that_only_sends_and_one_that_only_receives(
    collective: str, steps: int, ranks: int
) -> None:
    """Its busbw grows with its ranks: that of two A100 is 150 GB/s of gathers, of eight 205."""
    node = corrected(settings_of("dgx-a100", 8), "node", ramp=0.0, launch=0.0, efficiency=1.0)
    sizes, steps = np.array([1 << 32, 1 << 33]), steps * (ranks - 1)
    node = msgspec.structs.replace(node, algorithms=("Ring",), protocols=("Simple",))
    first, second = nccl_estimates(node, collective, sizes, np.arange(ranks))
    taken = second.time - first.time
    assert taken == pytest.approx((second.modeled - first.modeled) * (1 + 0.42 / steps))
    ramped = corrected(node, "node", ramp=100.0, ring_ramp=50.0, ramp_size=1.0)
    longer = nccl_estimates(ramped, collective, sizes[:1], np.arange(ranks))[0].time - first.time
    assert longer == pytest.approx(50 * (0.4 + 0.6 * steps / 14))


def test_a_small_tree_fills_its_steps_first() -> None:
    size = 1 << 13
    pair = corrected(settings_of("dgx-a100", 16), "nodes", efficiency=1.0)
    found = nccl_estimates(pair, "all_reduce", np.array([size]), SIXTEEN)[0]
    assert found[:2] == ("Tree", "LL")
    steps = [(2.0 * 0.6, 30.0)] * 7 + [(1.5 * 5.0, 24.0)]
    of_lines = tree_time(size, "LL", steps, 1.9 + 6.8, channels_of(size, "LL", 8, 16))
    of_bytes = found.modeled - 25.2  # NCCL's latency
    assert found.time == pytest.approx(of_lines + of_bytes)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    st.sampled_from(["dgx-a100", "dgx-h100", "dgx-b200"]), st.sampled_from([2, 4, 8, 16, 32]),
    st.integers(0, 33), st.sampled_from(["LL", "LL128", "Simple"]), st.floats(1.0, 5.0),
)  # fmt: skip
def test_longer_steps_never_take_less_and_choose_the_same(
    name: str, ranks: int, power: int, protocol: str, factor: float
) -> None:
    given_ = settings_of(name, 32)
    level = "node" if ranks <= 8 else "nodes"
    sizes, members = np.array([1 << power]), np.arange(ranks)
    plain = corrected(given_, level, steps={}, hops={})
    longer = corrected(given_, level, steps={protocol: factor}, hops={protocol: factor})
    before = nccl_estimates(plain, "all_reduce", sizes, members)[0]
    after = nccl_estimates(longer, "all_reduce", sizes, members)[0]
    assert before[:4] == after[:4]
    assert after.time >= before.time * (1 - 1e-9)
    bare = corrected(given_, level, steps={}, hops={}, launch=0.0, ramp=0.0, efficiency=1.0)
    assert nccl_estimates(bare, "all_reduce", sizes, members)[0].time >= before.modeled - 1e-9


def test_only_what_is_allowed_is_chosen() -> None:
    node = settings_of("dgx-h100", 8)
    sizes = np.array([8, 1 << 20, 1 << 33])
    allowed = msgspec.structs.replace(node, algorithms=("Ring", "Tree"), protocols=("Simple",))
    found = nccl_estimates(allowed, "all_reduce", sizes, EIGHT)
    assert {one.protocol for one in found} == {"Simple"}
    assert {one.algorithm for one in found} <= {"Ring", "Tree"}
    only = msgspec.structs.replace(node, algorithms=("NVLS",))
    assert {one.algorithm for one in nccl_estimates(only, "all_reduce", sizes, EIGHT)} == {"NVLS"}
    # of what it cannot do, NCCL takes what there is
    assert nccl_estimates(only, "broadcast", sizes, EIGHT)[0].algorithm == "Ring"


def test_corrections_add_up() -> None:
    some = Corrections(launch=2.0, ramp=10.0, ramp_size=100.0, efficiency=0.5)
    assert some.with_bytes(100, 7.0, 3.0) == pytest.approx(2 + 7 + 6 + 5)


MODELS = {4: lambda sizes: 10e3 + sizes * 1.0, 8: lambda sizes: 18e3 + sizes * 1.5}
TABLE = MeasuredCollective("all_reduce", 4, 1, (1024, 1 << 20, 1 << 24), (13e3, 1e6, 1.6e7))


def test_a_scaled_table_has_the_latency_of_its_ranks_and_keeps_the_rest() -> None:
    found = scaled_table(TABLE, 8, 1, MODELS[4], MODELS[8])
    rest = [time - 10e3 - 1.0 for time in TABLE.times]
    grown = [1.5 * (size - 1) / (size - 1) for size in TABLE.sizes]
    assert found.ranks == 8
    assert found.times == pytest.approx(
        [18e3 + 1.5 + one * factor for one, factor in zip(rest, grown, strict=True)]
    )
    same = scaled_table(TABLE, 4, 1, MODELS[4], MODELS[4])
    assert same.times == pytest.approx(TABLE.times)


def test_below_a_table_only_what_the_model_has_shrinks() -> None:
    table = MeasuredCollective("all_reduce", 4, 1, (1 << 20,), (2e6,))  # the model: 1.06e6
    found = measured_times(table, np.array([1 << 10]), MODELS[4])[0][0]
    assert found == pytest.approx(2e6 - ((1 << 20) - (1 << 10)))


def test_a_table_of_other_ranks_is_scaled_unless_they_are_too_far_apart() -> None:
    table = MeasuredCollective("all_reduce", 4, 1, (1 << 10, 1 << 24), (30e3, 3e5), "four")
    system = nadi.simulation.with_tables(nadi.load_system("dgx-h100", 8), (table,))
    rows = nadi.simulation.estimate_collectives(system, "all_reduce", [1 << 10])
    assert rows[0].source == "measured, latency, scaled to these ranks"
    more = nadi.simulation.collective_time(system, "all_reduce", 1 << 10)
    assert more == rows[0].time_ns > 30e3
    far = nadi.simulation.with_tables(nadi.load_system("dgx-h100", 64), (table,))
    assert nadi.simulation.estimate_collectives(far, "all_reduce", [8])[0].source.startswith("NCCL")
