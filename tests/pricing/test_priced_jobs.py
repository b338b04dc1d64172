"""Jobs without times get them from a device, in simulations and beside them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from rich.console import Console

import nadi
from nadi.cli import main
from nadi.models import write_job
from nadi.simulation import Simulation, read_simulation, results_of, write_simulation
from nadi.simulation.runs.result import SIMULATION
from nadi.systems import (
    Compute,
    System,
    learn_prices,
    load_device,
    price_job,
    price_trace,
    read_system_file,
)
from nadi.systems.prices.traced_operations import distinct_values, operators_of
from nadi.trace.operations import OP_CLASSES
from tests.reference import kernel_times

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
DEMO = Path(nadi.__file__).parent / "data" / "demo"
H100 = load_device("h100")
SHAPE = (1, 4096, 8192, 2048)
FLOPS, SIZE = 2 * 4096 * 8192 * 2048, 2 * (4096 * 2048 + 2048 * 8192 + 4096 * 8192)
PEAK = H100.peak["bfloat16"]
TIMES = [  # of the operations of the job below
    kernel_times.gemm(H100, SHAPE, SIZE, PEAK),
    kernel_times.memory(H100, "norm", 5, 1 << 26, PEAK),
    3000,
    kernel_times.roofline(H100, 1 << 40, 1 << 20, PEAK),
]


def job_of(times: tuple[int | None, ...] = (None, None, None), ranks: int = 4) -> nadi.Job:
    """Return a job whose ranks share a program of one node after the other."""
    with nadi.JobBuilder(world_size=ranks) as job:
        rank = job.all_ranks
        product = rank.compute("product", flops=FLOPS, bytes=SIZE, duration=times[0])
        product.attribute("op_class", "gemm").attribute("gemm_shape", list(SHAPE))
        product.attribute("dtype", "bfloat16")
        norm = rank.compute("norm", flops=5, bytes=1 << 26, duration=times[1])
        norm.attribute("op_class", "norm")
        rank.compute("timed", flops=7, bytes=7, duration=3000)
        rank.compute("unknown", flops=1 << 40, bytes=1 << 20, duration=times[2])
    return job.job


def page(done: Simulation) -> str:
    file = io.StringIO()
    SIMULATION.print(SIMULATION.data(results_of(done)), Console(file=file, width=200))
    return file.getvalue()


def test_a_job_without_times_takes_those_of_the_device(tmp_path: Path) -> None:
    done = nadi.simulate(job_of(), nadi.load_system("dgx-h100", 4))
    assert done.makespan == pytest.approx(sum(TIMES), abs=4)
    priced = done.priced
    assert priced
    assert (priced.num_priced, priced.curve, priced.unpriced) == (12, 12, 0)
    assert priced.duration_ns == pytest.approx(4 * (sum(TIMES) - 3000), abs=16)
    assert priced.low_ns < priced.duration_ns < priced.high_ns
    assert "priced 12 operations without a time by curves of h100: " in page(done)
    assert done.issues.height == 0
    write_simulation(done, tmp_path / "done.nadi")
    assert read_simulation(tmp_path / "done.nadi").priced == priced
    write_simulation(done, tmp_path / "done.json")
    written = msgspec.json.decode((tmp_path / "done.json").read_bytes())
    assert written["priced"] == msgspec.to_builtins(priced)


def test_a_shared_trace_is_priced_once_and_the_job_stays_as_it_is() -> None:
    job = job_of()
    before = job.traces[0].nodes.clone()
    new, _ = price_job(job, nadi.load_system("dgx-h100", 4))
    assert isinstance(new, nadi.Job)
    assert len({id(trace) for trace in new.traces}) == 1
    assert job.traces[0].nodes.equals(before)
    assert new.traces[0].column("duration").tolist() == pytest.approx(TIMES, abs=1)
    again, nothing = price_job(new, nadi.load_system("dgx-h100", 4))
    assert again is new
    assert nothing is None


def test_without_a_device_a_plain_roofline_of_its_rates(tmp_path: Path) -> None:
    done = nadi.simulate(job_of(ranks=1), nadi.load_system("tpu-v4", 1))
    assert done.priced
    assert done.priced.roofline == 3
    assert done.makespan == pytest.approx(
        sum(max(f / 275e12, b / 1228e9) * 1e9 for f, b in ((FLOPS, SIZE), (5, 1 << 26),
                                                           (1 << 40, 1 << 20))) + 3000, abs=4
    )  # fmt: skip
    assert "by a plain roofline" in page(done)


@pytest.mark.parametrize(
    "compute", [{}, {"roofline": True, "peak": 1e15, "memory_bandwidth": 1e12, "device": H100},
                {"replay_only": True, "device": H100}]
)  # fmt: skip
def test_other_rules_price_nothing(compute: dict[str, Any]) -> None:
    network = nadi.load_system("dgx-h100", 4).network
    done = nadi.simulate(job_of(), System(network, compute=Compute(**compute)))
    assert done.priced is None
    codes = done.issues["code"].to_list()
    assert codes == ([] if compute.get("roofline") else ["simulate.no-time"])
    same = nadi.load_system("dgx-h100", 4)
    job = job_of()
    compat = msgspec.structs.replace(same, compat="astra-sim", slots="astra-sim")
    assert price_job(job, compat) == (job, None)


def test_rates_of_a_system_scale_the_curves_of_its_device() -> None:
    described = read_system_file("dgx-h100")
    assert described.fit(1).compute.device == msgspec.structs.replace(H100, peak=dict(H100.peak))
    faster = msgspec.structs.replace(
        described, compute=msgspec.structs.replace(described.compute, peak="1978 TFLOP/s")
    )
    device = faster.fit(1).compute.device
    assert device
    assert device.peak["bfloat16"] == pytest.approx(2 * H100.peak["bfloat16"])
    assert device.bandwidth == H100.bandwidth


def test_shipped_systems_have_the_rates_of_their_devices() -> None:
    for name in ("dgx-a100", "dgx-h100", "hgx-h200", "gb200-nvl72"):
        described = read_system_file(name)
        device = load_device(described.compute.device)
        assert device.peak["bfloat16"] == pytest.approx(described.peak), name
        assert device.bandwidth == pytest.approx(described.memory_bandwidth), name


def test_what_states_no_work_is_counted() -> None:
    trace = job_of(ranks=1).traces[0]
    unknown = pl.Series([-1] * 4)
    bare = replace(
        trace, nodes=trace.nodes.with_columns(flops=unknown, bytes=unknown),
        given_attributes=nadi.trace.Attributes.empty(),
    )  # fmt: skip
    new, priced = price_trace(bare, H100)
    assert (priced.num_priced, priced.unpriced) == (0, 3)
    assert new.issues.select("code", "count").rows() == [("pricing.no-work", 3)]


def test_different_values_of_an_attribute_are_found() -> None:
    with nadi.JobBuilder(world_size=1) as job:
        for k in range(40):
            node = job.all_ranks.compute("x", flops=1, bytes=1)
            node.attribute("text", "a" * (k % 9)).attribute("sizes", list(range(k % 4 + 1)))
            node.attribute("number", k % 3)
    attributes = job.job.traces[0].attributes
    for name, expected in (
        ("text", ["a" * (k % 9) for k in range(40)]),
        ("sizes", [list(range(k % 4 + 1)) for k in range(40)]),
        ("number", [k % 3 for k in range(40)]),
    ):
        node, number, values = distinct_values(attributes, name)
        assert node.tolist() == list(range(40))
        assert [values[k] for k in number] == expected
        assert len(values) == len({str(value) for value in expected})


# operators of PyTorch


def test_operators_of_a_host_trace_are_priced_by_their_operands() -> None:
    trace = nadi.read(DEMO / "host_0.json.gz")
    stands, operations = operators_of(trace)
    names = trace.nodes["name"].cast(pl.String).to_list()
    chosen = [row for row in np.flatnonzero(stands) if names[row] == "aten::mm"]
    assert chosen
    new, priced = price_trace(trace, H100)
    assert priced.num_priced == stands.sum() > len(chosen)
    for row in chosen:
        assert OP_CLASSES[operations.op_class[row]] == "gemm"
        shape = tuple(operations.shape[row].tolist())
        tensors = trace.operands.filter((pl.col("node") == row) & (pl.col("tensor") >= 0))
        first, second = (trace.tensors["shape"][int(t)].to_list() for t in tensors["tensor"][:2])
        assert shape == (1, first[0], second[1], first[1])
        size = int(operations.bytes[row])
        expected = kernel_times.gemm(H100, shape, size, H100.peak["float32"])
        assert new.column("duration")[row] == pytest.approx(expected, abs=1)
    parents = set(trace.column("parent")[stands].tolist())
    assert not parents & set(np.flatnonzero(stands).tolist())


# learned prices


def test_learned_prices_are_medians_of_equal_operations() -> None:
    learned = learn_prices([job_of((one, one + 7, 9)).traces[0] for one in (100, 104, 300)])
    done = nadi.simulate(job_of(), nadi.load_system("dgx-h100", 4), learned)
    assert done.makespan == 104 + 111 + 3000 + 9
    assert done.priced
    assert done.priced.exact == 12
    assert done.priced.low_ns <= 4 * (94 + 100 + 8)
    assert "by recorded operations of the same shape" in page(done)


def test_learned_prices_are_interpolated_by_the_curve() -> None:
    """Recorded at twice the curve's times: then others take twice their curve's."""
    sizes = [1 << power for power in (22, 24, 26, 28)]

    def norms(times: list[int] | None) -> nadi.Job:
        with nadi.JobBuilder(world_size=1) as job:
            for k, size in enumerate(sizes if times else [1 << 25, 1 << 27, 1 << 34]):
                node = job.all_ranks.compute(
                    "norm", flops=0, bytes=size, duration=times[k] if times else None
                )
                node.attribute("op_class", "norm")
        return job.job

    peak = H100.peak[""]
    recorded = [round(2 * kernel_times.memory(H100, "norm", 0, size, peak)) for size in sizes]
    new, priced = price_trace(norms(None).traces[0], H100, learn_prices(norms(recorded)))
    assert (priced.exact, priced.interpolated, priced.curve) == (0, 2, 1)
    curve = [kernel_times.memory(H100, "norm", 0, 1 << power, peak) for power in (25, 27, 34)]
    expected = [2 * curve[0], 2 * curve[1], curve[2]]  # the last is too far from all recorded
    assert new.column("duration").tolist() == pytest.approx(expected, rel=1e-3)


def test_nothing_to_learn_is_refused() -> None:
    with pytest.raises(nadi.NadiError, match="no operation in it has a time on a device") as caught:
        learn_prices(nadi.load_job(DEMO))
    assert str(DEMO) in caught.value.where  # which recording, of several


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_operators_of_a_gpu_take_the_sum_of_their_kernels() -> None:
    job = nadi.load_job(SHARED / "gpu_resnet_pair")
    learned = learn_prices(job)
    trace = job.traces[0]
    launched = trace.deps.filter(pl.col("kind") == "launch")["dst"].to_numpy()
    kernels = trace.column("duration")[launched].sum()
    table = learned.table
    assert 0 < (table["count"] * table["median"]).sum() <= 1.05 * kernels
    assert (table["low"] <= table["median"]).all()
    assert (table["median"] <= table["high"]).all()
    host = nadi.read(SHARED / "gpu_resnet_pair" / "host.json.gz")
    _, priced = price_trace(host, load_device("a100"), learned)
    assert priced.exact > 0.9 * priced.num_priced


# the command


def test_the_command_prices_by_a_device_and_by_a_recording(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_job(job_of(), tmp_path / "job")
    write_job(job_of((100, 200, 300)), tmp_path / "timed")
    assert main(["simulate", str(tmp_path / "job"), "--system", "dgx-h100"]) == 0
    assert "priced 12 operations without a time by curves of h100" in capfd.readouterr().out
    learned = ["--prices", str(tmp_path / "timed"), "--json"]
    assert main(["simulate", str(tmp_path / "job"), "--system", "dgx-h100", *learned]) == 0
    found = msgspec.json.decode(capfd.readouterr().out)
    assert (found["makespan_ns"], found["priced"]["exact"]) == (3600, 12)
    assert main(["simulate", str(tmp_path / "timed"), "--system", "dgx-h100"]) == 0
    assert "priced" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('device = "h1000"', "no file and no device has this name"),
        ('device = "missing.toml"', "missing.toml"),
    ],
)
def test_unknown_devices_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        f'[compute]\n{text}\n[[network.dimensions]]\ntopology = "ring"\nbandwidth = "1 GB/s"\n'
    )
    with pytest.raises(nadi.NadiError, match=said):
        read_system_file(file)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"3.35 TB/s"', "3.35", "has no unit"),
        ("units = 132", "units = 0", "units"),
        ("share = ", "part = ", "part"),
        ('"" = "989 TFLOP/s"', "", "a peak for"),
        ("[peak]", "[peak", "TOML"),
    ],
)
def test_wrong_device_files_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (Path(nadi.__file__).parent / "data" / "devices" / "h100.toml").read_text()
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(old, new))
    with pytest.raises(nadi.NadiError, match=said):
        load_device(file)


def test_prices_are_learned_from_the_profiler_alone(tmp_path: Path) -> None:
    """Operators state shapes of inputs, and the kernels that each launches have times."""

    def event(name: str, category: str, start: int, length: int, **args: object) -> object:
        return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": length, "pid": 1,
                "tid": 7 if category == "kernel" else 1, "args": args}  # fmt: skip

    events = []
    for number, side in enumerate((512, 512, 1024)):
        at = 100 * number
        shapes = {"Input Dims": [[side, 256], [256, 128]], "Input type": ["c10::Half"] * 2}
        events += [
            event("aten::mm", "cpu_op", at, 60, **shapes),
            event("cudaLaunchKernel", "cuda_runtime", at + 20, 10, correlation=number + 1),
            event(
                "gemm", "kernel", at + 50, side // 64, stream=7, device=0, correlation=number + 1
            ),
        ]
    path = tmp_path / "device.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    table = learn_prices(nadi.load_job(path)).table.sort("s1")
    assert table["name"].to_list() == ["aten::mm"] * 2
    assert table.select("s0", "s1", "s2", "s3").rows() == [(1, 512, 128, 256), (1, 1024, 128, 256)]
    assert table["median"].to_list() == [8000, 16000]
    assert table["count"].to_list() == [2, 1]
    assert table["work"].to_list() == [2 * 512 * 128 * 256, 2 * 1024 * 128 * 256]


def test_a_single_recorded_shape_says_how_much_slower_others_are() -> None:
    def norm(size: int, time: int | None) -> nadi.Job:
        with nadi.JobBuilder(world_size=1) as job:
            node = job.all_ranks.compute("norm", flops=0, bytes=size, duration=time)
            node.attribute("op_class", "norm")
        return job.job

    peak = H100.peak[""]
    curve = [kernel_times.memory(H100, "norm", 0, size, peak) for size in (1 << 24, 1 << 25)]
    learned = learn_prices(norm(1 << 24, round(3 * curve[0])))
    done = price_trace(norm(1 << 25, None).traces[0], H100, learned)[0]
    assert done.column("duration").tolist() == pytest.approx([3 * curve[1]], rel=1e-3)
