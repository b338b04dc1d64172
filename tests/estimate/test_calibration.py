"""Estimates calibrated with what was measured: kernels of recordings, tables of collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import nadi
from nadi.estimates import (
    Calibration,
    describe_step,
    estimate,
    machine_of_system,
    read_calibration,
    read_machine,
    search,
    search_space,
)
from nadi.estimates.price_bounds import step_bounds
from nadi.estimates.single.checks import check_estimate
from nadi.memory.placement.command import simulate_offloaded
from nadi.models import write_job
from nadi.systems import System, load_device, price_job

PLAN: dict[str, Any] = {"dp": 4, "tp": 2, "global_batch": 8, "sequence": 1024}
MODEL = "llama3-8b"


def on_a100() -> System:
    """DGX H100 whose device is that of DGX A100: its curves, peaks and bandwidth."""
    system = nadi.load_system("dgx-h100", 8)
    compute = msgspec.structs.replace(system.compute, device=load_device("a100"))
    return msgspec.structs.replace(system, compute=compute)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated job with the times that kernels take on another device."""
    folder = tmp_path_factory.mktemp("recorded") / "job"
    job, _ = price_job(nadi.llm_job(MODEL, **PLAN), on_a100())
    assert isinstance(job, nadi.Job)
    write_job(job, folder)
    return folder


def test_an_estimate_with_all_kernels_recorded_is_that_of_the_recorded_device(
    recording: Path,
) -> None:
    calibration = read_calibration([recording])
    step = describe_step(MODEL, "dgx-h100", PLAN, calibration=calibration)
    found = estimate(step.model, step.machine, step.execution)
    there = estimate(step.model, machine_of_system(on_a100()), step.execution)
    plain = describe_step(MODEL, "dgx-h100", PLAN)
    before = estimate(plain.model, plain.machine, plain.execution)
    assert there.seconds > 1.5 * before.seconds
    for name in ("forward", "backward", "ends"):
        assert found.times[name] == pytest.approx(there.times[name], rel=2e-3)
    assert found.bounds is not None
    assert found.bounds.sources == {"exact": 1.0}
    assert found.bounds.low < found.seconds < found.bounds.high
    assert before.bounds is None
    simulated = nadi.simulate(nadi.llm_job(MODEL, **PLAN), on_a100()).makespan / 1e9
    assert found.seconds == pytest.approx(simulated, rel=0.03)


def test_a_check_simulates_with_the_same_prices(recording: Path) -> None:
    calibration = read_calibration([recording])
    for offload in ((), ("optimizer",)):
        step = describe_step(MODEL, "dgx-h100-cxl", PLAN, offload=offload, calibration=calibration)
        found = check_estimate(step, "dgx-h100-cxl", estimate(*step[:3]), placed=simulate_offloaded)
        assert found.estimated == pytest.approx(found.simulated, rel=0.03)


def test_a_search_takes_the_same_times_and_its_bounds_are_those_of_the_estimate(
    recording: Path,
) -> None:
    step = describe_step(MODEL, "dgx-h100", PLAN, calibration=read_calibration([recording]))
    alone = estimate(step.model, step.machine, step.execution)
    values = msgspec.to_builtins(step.execution)
    ranks, batch = values.pop("num_procs"), values.pop("batch_size")
    given = {name: [value] for name, value in values.items()}
    space = search_space(step.model, step.machine, ranks, batch, given)
    (best,) = search(space).best
    assert best.seconds == pytest.approx(alone.seconds)
    (executions,) = space.executions(0, 1)
    low, high = step_bounds(step.model, step.machine, executions, space.rules)
    assert alone.bounds is not None
    assert (low[0], high[0]) == pytest.approx((alone.bounds.low, alone.bounds.high))


def test_measured_collectives_come_before_the_model_of_nccl(tmp_path: Path) -> None:
    slow = tmp_path / "all_reduce.txt"
    ranks = [f"#  Rank {n} Group 0 Pid {n} on host0 device {n} [0x0f] H100" for n in range(8)]
    sizes = [f"{1 << p} {1 << p - 1} half sum -1 50000.0 1.0 1.0 0" for p in (20, 26, 34)]
    header = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    slow.write_text(
        "\n".join(["# Collective test starting: all_reduce_perf", *ranks, header, *sizes])
    )
    calibration = read_calibration([slow])
    assert calibration.prices is None
    plan = PLAN | {"dp": 1, "tp": 8, "sequence_parallel": False}
    plain, measured = (
        estimate(step.model, step.machine, step.execution)
        for step in (
            describe_step(MODEL, "dgx-h100", plan, calibration=one)
            for one in (None, calibration)
        )
    )  # fmt: skip
    assert measured.times["tensor_parallel"] > 20 * plain.times["tensor_parallel"]
    assert measured.times["forward"] == plain.times["forward"]
    assert measured.bounds is not None
    assert measured.bounds.collectives == ("all_reduce of 8 ranks",)


def test_what_cannot_be_calibrated_is_refused(tmp_path: Path) -> None:
    nothing = Calibration(None, ())
    machine = Path("examples/estimate/machine.json")
    with pytest.raises(nadi.errors.UsageError, match="Calculon"):
        read_machine(machine, 8, calibration=nothing)
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    with pytest.raises(nadi.errors.InputError):
        read_calibration([empty])
