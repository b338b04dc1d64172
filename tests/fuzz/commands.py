"""Whole commands with damaged files: every kind of file that one takes, besides traces alone.

The line is run as a shell would, in this process. It has to end with 0, or with 1 or 2 after one
line about the input, in less than 20 seconds of the processor.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import shlex
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType

import polars as pl

import nadi
from nadi.cli import main
from nadi.sharing.conditional.corpora import Ranges, generated_jobs
from nadi.systems.library import shipped_text
from tests.conftest import DEMO
from tests.feed.traces import attribute, content as content_of, message
from tests.formats.flight_records import Job
from tests.formats.foreign_files import inspector_log
from tests.fuzz.corpus import samples
from tests.fuzz.damages import damaged

__all__ = ["COMMANDS", "LONGEST", "Command", "run_line", "try_command"]

LONGEST = 20.0  # seconds of the processor
_LONGEST_LINE = 1_100  # of an error, with "nadi: " before it
Files = dict[str, bytes]


@dataclass(frozen=True)
class Command:
    """A command, or some, that take the same files.

    Attributes
    ----------
    files
        Makes their files: content by name.
    lines
        What is run; words with ``@`` name a file, ``@`` alone their folder.
    damaged
        Which of the files are damaged.
    """

    files: Callable[[], Files]
    lines: tuple[str, ...]
    damaged: tuple[str, ...]


def try_command(command: Command, seed: str, folder: Path) -> bool:
    """Run a command with one or two of its files damaged; tells whether it took them."""
    chance = random.Random(seed)
    files = dict(command.files())
    for _ in range(chance.choice((1, 1, 1, 2))):
        name = chance.choice(command.damaged)
        other = files[chance.choice(command.damaged)]
        files[name] = damaged(files[name], other, name, chance)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        for name, content in files.items():
            place = Path(own) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        words = shlex.split(chance.choice(command.lines))
        return run_line([word.replace("@", f"{own}/") for word in words]) != 2


class _TooLongError(BaseException):
    """The command did not end; nothing of Nadi catches it."""


@contextmanager
def _limited() -> Iterator[None]:
    """Raise if something takes over 20 seconds of the processor."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TooLongError(f"over {LONGEST:.0f} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_line(words: list[str]) -> int:
    """Run a command line, and check how it ended; gives its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with _limited(), redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    said = err.getvalue()
    assert code in (0, 1, 2), (code, words, said)
    if code == 2:
        # lines of progress, which slow machines print, end with the seconds that have passed
        lines = [line for line in said.splitlines()
                 if line.startswith("nadi: ") and not re.search(r"; \d+ s$", line)]  # fmt: skip
        assert len(lines) == 1, (words, said)
        assert lines[0].isprintable(), lines
        assert len(lines[0]) < _LONGEST_LINE, lines
        # an error of the system, or of memory, that nobody told from one of standard output
        assert not lines[0].startswith(("nadi: standard output:", "nadi: memory:")), lines
    for line in [*said.splitlines(), *out.getvalue().split("\n")]:
        assert line.isprintable(), line
    return code


def _rank(number: int) -> bytes:
    messages = [
        message(1, duration_micros=7, attr=[attribute("is_cpu_op", "bool", False)]),
        message(2, (1,), type=7, attr=[
            attribute("is_cpu_op", "bool", False), attribute("comm_type", "int64", 0),
            attribute("comm_size", "uint64", 4096), attribute("pg_name", "string", "1")]),
        message(3, (1,), type=5 + number, attr=[
            attribute("is_cpu_op", "bool", False), attribute("comm_size", "uint64", 64),
            attribute("comm_src", "int32", 1), attribute("comm_dst", "int32", 0),
            attribute("comm_tag", "int32", 3)]),
        message(4, (2, 3), attr=[
            attribute("num_ops", "int64", 10**6), attribute("tensor_size", "uint64", 1000),
            attribute("is_cpu_op", "bool", False)]),
    ]  # fmt: skip
    return content_of(messages)


def _job() -> Files:
    return {"job/w.0.et": _rank(1), "job/w.1.et": _rank(0), "groups.json": b'{"1": [0, 1]}'}


_TABLE = "".join(
    f"#  Rank {q:2} Group  0 Pid {q} on   host{q // 2} device {q % 2} [0x0f] GPU\n"
    for q in range(4)
) + (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time\n"
    "          16             4     float     sum      -1    12.50    0.00    0.00      0    12.00\n"
    "     1048576        262144     float     sum      -1    62.50   16.78   25.17      0    62.00\n"
)
_LOG = """h0:10:11 [0] NCCL INFO cudaDriverVersion 12040
NCCL version 2.21.5+cuda12.4
h0:10:20 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
h0:10:20 [0] NCCL INFO Pattern 4, crossNic 2, nChannels 8, bw 48.0/48.000000, type NVL/PIX, \
sameChannels 0
h0:10:20 [0] NCCL INFO Pattern 3, crossNic 0, nChannels 8, bw 48.000000/48.000000, type NVL/PIX, \
sameChannels 1
h0:10:20 [0] NCCL INFO Pattern 5, crossNic 0, nChannels 8, bw 40.000000/48.000000, type NVL/PIX, \
sameChannels 0
h1:10:20 [0] NCCL INFO Pattern 4, crossNic 2, nChannels 4, bw 24.000000/24.000000, type NVL/PXN, \
sameChannels 1
"""


def _text_workload() -> Files:
    head = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: 8"
    layer = "mlp -1 7 ALLGATHER 32 3 ALLTOALL_EP 8 2 ALLREDUCE_DP_EP 48 0"
    return {"w.txt": f"{head}\n2\n{layer}\n{layer}\n".encode()}


@cache
def _collectives() -> Files:
    return {"all_reduce.txt": _TABLE.encode(), "nccl.log": _LOG.encode(),
            "inspector.log": inspector_log(), "system.toml": shipped_text("dgx-h100").encode()}  # fmt: skip


_SWITCHES = """
  python  4135 [029]  10.000001: sched:sched_waking: comm=my worker pid=4129 prio=120 target_cpu=082
  python  4135/4136 [029] 10.000001500:  sched:sched_wakeup: comm=my worker pid=4129 prio=120
  python  4135 [029]  10.000002: sched:sched_switch: prev_comm=python prev_pid=4135 prev_prio=120 \
prev_state=S ==> next_comm=swapper/9 next_pid=0 next_prio=120
 swapper     0 [000]  10.000003: sched:sched_switch: swapper/0:0 [120] R ==> my worker:4129 [120]
     <idle>-0     [007] d.s3   10.000200: softirq_entry: vec=3 [action=NET_RX]
     <idle>-0     [007] d.s3   10.000300: sched_waking: comm=a pid=5 prio=9 target_cpu=007
     <idle>-0     [007] d.s3   10.000400: softirq_exit: vec=3 [action=NET_RX]
  b-c-2931 (  12) [013] dN..   10.000500: sched_waking: comm=a pid=5 prio=9 target_cpu=013
  b-c-2931-2932   [013] d..2.  10.000600: sched_switch: prev_comm=b prev_pid=2932 prev_prio=1 \
prev_state=R+ ==> next_comm=a next_pid=5 next_prio=120
"""


@cache
def _dumps() -> Files:
    job = Job({"0": range(3), "a": range(2)})
    job.call("a")
    job.call("0")
    job.call("0", "send 0->1", ranks=[0], is_p2p=True, state="started")
    job.call("0", "recv 1<-0", ranks=[1], is_p2p=True, state="started")
    job.call("0", ranks=[0, 1], state="started")
    dumps = job.dumps()
    return {
        "dumps/rank_0": pickle.dumps(dumps[0], 2), "dumps/rank_1": pickle.dumps(dumps[1], 4),
        "dumps/rank_2.json": json.dumps(dumps[2]).encode(),
    }  # fmt: skip


def _switches() -> Files:
    from nadi.trace.protobuf_values import write_varint

    def field(number: int, value: bytes | int) -> bytes:
        if isinstance(value, int):
            return write_varint(8 * number) + write_varint(value)
        return write_varint(8 * number + 2) + write_varint(len(value)) + value

    switch = b"".join((
        field(1, b"a"), field(2, 5), field(3, 120), field(4, 1), field(5, b"b"), field(6, 7),
        field(7, 120),
    ))  # fmt: skip
    waking = b"".join((field(1, b"b"), field(2, 7), field(3, 120), field(4, 1), field(5, 0)))
    events = b"".join(
        field(2, field(1, 10**9 + number) + field(2, 5) + field(code, one))
        for number, (code, one) in enumerate(((20, waking), (4, switch), (20, waking), (4, switch)))
    )
    packet = field(1, field(8, 10**9) + field(1, field(1, 0) + events))
    return {"s.txt": _SWITCHES.encode(), "s.pftrace": packet}


_MODEL = {
    "layers": 2, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn": 512, "vocab": 1000,
    "sequence": 128, "max_positions": 512, "gated": True, "norm": "rmsnorm", "position": "rope",
}  # fmt: skip
_CALCULON = {
    "app.json": {"hidden": 1024, "feedforward": 4096, "seq_size": 512, "attn_heads": 8,
                 "attn_size": 128, "num_blocks": 8},
    "exe.json": {
        "num_procs": 64, "tensor_par": 8, "pipeline_par": 2, "data_par": 4, "tensor_par_net": 0,
        "pipeline_par_net": 1, "data_par_net": 1, "batch_size": 64, "microbatch_size": 1,
        "datatype": "float16", "fused_activation": True, "attention_type": "multihead",
        "activation_recompute": "full", "pipeline_interleaving": 2, "optimizer_sharding": True,
        "tensor_par_comm_type": "ar", "tensor_par_overlap": "none", "seq_par_ag_redo": False,
        "data_par_overlap": False, "weight_offload": False, "activations_offload": False,
        "optimizer_offload": False, "training": True},
    "sys.json": {
        "matrix": {"float16": {"tflops": 1000, "gflops_efficiency": [[128, 0.95], [1, 0.6], [0, 0.1]]}},
        "vector": {"float16": {"tflops": 120, "gflops_efficiency": [[16, 0.95], [0, 0.1]]}},
        "mem1": {"GiB": 80, "GBps": 3072, "MB_efficiency": [[100, 0.9], [0, 0.3]]},
        "mem2": {"GiB": 512, "GBps": 450, "MB_efficiency": [[100, 0.95], [0, 0.3]]},
        "processing_mode": "no_overlap",
        "networks": [
            {"bandwidth": 450, "efficiency": 0.65, "size": 8, "latency": 1e-05,
             "ops": {"p2p": [1.0, None], "reduce_scatter": [1.0, 0], "all_gather": [1.0, 0],
                     "all_reduce": [1.0, 1]},
             "must_be_filled": True, "processor_usage": 0.15},
            {"bandwidth": 50, "efficiency": 0.9, "size": 65536, "latency": 2e-05,
             "ops": {"p2p": [1.0, None], "reduce_scatter": [1.0, 0], "all_gather": [1.0, 0],
                     "all_reduce": [1.0, 0]},
             "must_be_filled": False, "processor_usage": 0.02}]},
}  # fmt: skip


@cache
def _estimates() -> Files:
    plan = {"tp": 2, "dp": 4, "global_batch": 8, "micro_batch": 1, "sequence": 128}
    placed = {**plan, "dp": 2, "global_batch": 2, "model": "gpt3-125m", "sequence": 64}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in placed.items())
    described = {"model.json": _MODEL, "plan.json": plan, **_CALCULON}
    files = {name: json.dumps(value).encode() for name, value in described.items()}
    return {
        **files, "system.toml": shipped_text("dgx-h100-cxl").encode(), "plan.toml": text.encode(),
        "place.json": b'{"optimizer": "cxl", "0:2": "dram"}',
        "place.csv": b"tensor,tier,bytes\noptimizer,cxl,3\n0:2,dram,9\n",
    }  # fmt: skip


@cache
def _generated() -> Files:
    data = Path(nadi.__file__).parent / "data"
    return {
        "model.json": json.dumps(_MODEL).encode(),
        "network.toml": (data / "networks" / "dlrm-kaggle.toml").read_bytes(),
        "t4.toml": (data / "offload" / "t4.toml").read_bytes(),
    }


_GOAL = """num_ranks 2
rank 0 {
l1: calc 100
l2: send 8b to 1 tag 5
l2 requires l1
l3: calc 10 cpu 1
l3 irequires l2
}
rank 1 {
l1: recv 8b from 0 tag 5
l2: calc 50
l2 requires l1
}
"""
_ISSUES = """issue,npu_id=0,curr_cycle=5,node_id=1,node_name=COMP_NODE_matmul
callback,npu_id=0,curr_cycle=105,node_id=1,node_name=COMP_NODE_matmul
issue,npu_id=1,curr_cycle=7,node_id=2,node_name=COMM_COLL_NODE_a
callback,npu_id=1,curr_cycle=9,node_id=2,node_name=COMM_COLL_NODE_a
"""


def _written(*lines: str, names: tuple[str, ...]) -> Files:
    """Give files that Nadi itself writes."""
    with tempfile.TemporaryDirectory() as own:
        for name, content in _job().items():
            place = Path(own) / name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
        for line in lines:
            assert run_line([word.replace("@", f"{own}/") for word in line.split()]) == 0, line
        return {name: (Path(own) / name).read_bytes() for name in names}


_ON = "--system pcie-workstation --comm-group @groups.json"


@cache
def _saved() -> Files:
    """Give the results of a simulation in all forms that are read again, and others' logs."""
    found = _written(
        *(f"simulate @job {_ON} -o @{name}" for name in ("s.json", "s.csv", "s.nadi")),
        names=("s.json", "s.csv", "s.nadi"),
    )
    return {**found, "run.log": _ISSUES.encode(), "job.goal": _GOAL.encode()}


@cache
def _models() -> Files:
    """Give a folded job, a model of jobs, and a generator."""
    lines = (
        "fold @job -o @folded.nadi", "learn @job -o @model.nadi",
        "learn --generated 3 -o @generator.nadi",
    )  # fmt: skip
    names = ("folded.nadi", "model.nadi", "generator.nadi", "groups.json")
    return {**_written(*lines, names=names), **_listed()}


def _listed() -> Files:
    """Give a table of a generated job with its conditions, and the job."""
    small = Ranges(
        hidden=(256, 256), stage_layers=(1, 1), sequence=(256, 256), micro_batches=(1, 1), ranks=1
    )
    ((job, known, _),) = generated_jobs(1, 0, small)
    with tempfile.TemporaryDirectory() as own:
        nadi.models.write_job(job, Path(own) / "listed")
        values = [str(value).lower() if isinstance(value, bool) else str(value)
                  for value in known.values()]  # fmt: skip
        rows = [["job", *known], ["listed", *values], ["listed", *values]]
        table = Path(own, "listed.csv")
        table.write_text("".join(f"{','.join(row)}\n" for row in rows))
        line = f"learn --conditions {table} --epsilon 1 --device h100 --generated 3 -o"
        assert run_line([*line.split(), str(Path(own) / "private.nadi")]) == 0
        return {
            str(path.relative_to(own)): path.read_bytes()
            for path in Path(own).rglob("*") if path.is_file()
        }  # fmt: skip


@cache
def _summaries() -> Files:
    with tempfile.TemporaryDirectory() as own:
        assert run_line(["run", str(DEMO), "--step", "1", "-o", own]) == 0
        summary = (Path(own) / "summary.json").read_bytes()
    simulation = _saved()["s.json"]
    return {"out/summary.json": summary, "simulation.json": simulation}


def _events(rank: int) -> list[dict[str, object]]:
    """Give two steps: a module with a product, a copy, a collective, waits, allocations."""
    events: list[dict[str, object]] = []

    def add(name: str, category: str, start: float, duration: float, **args: object) -> None:
        on_device = category.startswith(("gpu", "kernel"))
        place = {"pid": 0, "tid": args["stream"]} if on_device else {"pid": 70 + rank, "tid": 7}
        events.append({"ph": "X", "cat": category, "name": name, **place, "ts": start,
                       "dur": duration, "args": {"External id": len(events), **args}})  # fmt: skip

    for step in range(2):
        at, first = 1000.0 * step + 5000.5, 100 * step
        add(f"ProfilerStep#{step}", "user_annotation", at, 900)
        add(
            "nn.Module: Linear_0",
            "python_function",
            at + 1,
            300,
            **{"Python id": first + 1, "Python parent id": 0, "Python module id": 0},
        )
        add(
            "aten::mm",
            "cpu_op",
            at + 10,
            100,
            **{
                "Input Dims": [[64, 32], [32, 16]],
                "Input type": ["float", "float"],
                "Concrete Inputs": ["", ""],
                "Sequence number": step,
                "Record function id": first,
            },
        )
        add("cudaLaunchKernel", "cuda_runtime", at + 20, 5, correlation=first + 1, cbid=211)
        add(
            "gemm",
            "kernel",
            at + 30,
            200,
            stream=7,
            device=0,
            correlation=first + 1,
            queued=0,
            grid=[8, 1, 1],
            block=[128, 1, 1],
        )
        add("cudaMemcpyAsync", "cuda_runtime", at + 130, 5, correlation=first + 2)
        add(
            "Memcpy HtoD (Pageable -> Device)",
            "gpu_memcpy",
            at + 240,
            20,
            stream=7,
            device=0,
            correlation=first + 2,
            bytes=4096,
            **{"memory bandwidth (GB/s)": 0.2},
        )
        add(
            "record_param_comms",
            "cpu_op",
            at + 150,
            40,
            **{
                "Collective name": "allreduce",
                "In msg nelems": 1024,
                "Out msg nelems": 1024,
                "dtype": "Float",
                "Group size": 2,
                "Process Group Name": "0",
                "Seq": step,
                "Process Group Description": "default_pg",
                "Process Group Ranks": "[0, 1]",
            },
        )
        add("cudaLaunchKernel", "cuda_runtime", at + 160, 5, correlation=first + 3)
        add(
            "ncclDevKernel_AllReduce_Sum_f32",
            "kernel",
            at + 270,
            100,
            stream=20,
            device=0,
            correlation=first + 3,
            **{
                "Collective name": "allreduce",
                "In msg nelems": 1024,
                "Group size": 2,
                "dtype": "Float",
                "Process Group Name": "0",
                "Process Group Ranks": "[0, 1]",
            },
        )
        add("cudaStreamWaitEvent", "cuda_runtime", at + 200, 2, correlation=first + 4)
        add(
            "Stream Wait Event",
            "cuda_sync",
            at + 200,
            0,
            stream=7,
            device=0,
            correlation=first + 4,
            wait_on_stream=20,
            wait_on_cuda_event_record_corr_id=first + 3,
        )
        add("cudaDeviceSynchronize", "cuda_runtime", at + 310, 80, correlation=first + 5)
        host = {"pid": 70 + rank, "tid": 7}
        events += [
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                **host,
                "ts": at + 60 + (total < 0) * 100,
                "args": {
                    "Total Reserved": 2**20,
                    "Total Allocated": max(total, 0),
                    "Bytes": total,
                    "Addr": 99,
                    "Device Id": 0,
                    "Device Type": 1,
                },
            }
            for total in (4096, -4096)
        ]
        events += [
            {"ph": phase, "id": first, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e", **host,
             "ts": at + 10}
            for phase in "sf"
        ]  # fmt: skip
    return events


@cache
def _recordings() -> Files:
    """Give a small recording of two ranks, which other commands go through than readers."""
    files = {}
    for rank in range(2):
        content = {"schemaVersion": 1, "traceEvents": _events(rank), "distributedInfo": {
            "rank": rank, "world_size": 2, "backend": "nccl", "pg_config": [
                {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2}]}}  # fmt: skip
        files[f"job/device_{rank}.json"] = json.dumps(content).encode()
    both = {"schemaVersion": 1, "traceEvents": _events(0) + _events(1)}
    files["merged.json"] = json.dumps(both).encode()
    pair = {f"pair/{name}_0.json": samples()[name].content for name in ("host", "device")}
    return {**files, **pair}


@cache
def _operation_table() -> Files:
    """Give a table of operations of two stages and two data-parallel ranks."""
    lines = ["dp_rank,stage,step,optype,seq_id,mc,start_ts,duration"]
    kinds = ("params-all-gather", "forward-compute", "backward-compute", "grads-reduce-scatter")
    messages = (("forward-send", "backward-recv"), ("forward-recv", "backward-send"))
    for number in range(4):
        step, dp = divmod(number, 2)
        for stage, own in enumerate(messages):
            for at, kind in enumerate((*kinds, *own)):
                lines.append(f"{dp},{stage},{step},{kind},0,0,{at / 8},0.1")
    text = "\n".join(lines).encode()
    parquet = io.BytesIO()
    pl.read_csv(text).write_parquet(parquet)
    return {"table.csv": text, "table.parquet": parquet.getvalue()}


def _shared_ranks() -> Files:
    """Give a job whose ranks share a trace, as ``nadi record --fake`` writes it."""
    with nadi.JobBuilder(world_size=4) as job:
        group = job.group("1", range(4))
        for rank in job.ranks:
            done = rank.compute("aten::mm", duration="1 ms", bytes=10)
            rank.stream(1).collective("all_reduce", 1024, group=group, after=done)
    trace = job.job.traces[0]
    named = trace.groups.with_columns(description=pl.lit("data"))
    with tempfile.TemporaryDirectory() as own:
        path = Path(own) / "rank.0.nadi"
        nadi.write(replace(trace, groups=named), path)
        content = path.read_bytes()
    ranks = {"world_size": 4, "families": {"data": [[0, 1, 2, 3]]},
             "shared": [{"trace": "rank.0.nadi", "ranks": [[0, 4]]}]}  # fmt: skip
    return {"fake/ranks.json": json.dumps(ranks).encode(), "fake/rank.0.nadi": content}


_POLICY = "--gpu-batch-size 8 --num-gpu-batches 2"  # a search solves a hundred programs
_ON_RANKS = "--ranks 16 --system @system.toml"
COMMANDS: dict[str, Command] = {
    "text-workload": Command(
        _text_workload,
        ("simulate @w.txt --system dgx-h100", "simulate @w.txt --system dgx-h100 --ranks 16 --json"),
        ("w.txt",),
    ),
    "measured": Command(
        _collectives,
        ("collective all_reduce 1MB,16B --system dgx-h100 --ranks 4 --measured @all_reduce.txt",
         "estimate gpt3-125m dgx-h100 --tp 4 --calibrate @all_reduce.txt"),
        ("all_reduce.txt",),
    ),
    "inspector": Command(
        _collectives,
        ("collective measured --system dgx-h100 --measured @inspector.log",
         "estimate gpt3-125m dgx-h100 --dp 4 --calibrate @inspector.log",
         "memory plan --model gpt3-125m --system dgx-h100 --ranks 4 --calibrate @inspector.log"),
        ("inspector.log",),
    ),
    "nccl-log": Command(
        _collectives,
        tuple(
            f"collective {name} 1KiB..1MiB --system dgx-h100 --ranks 16 --nccl-log @nccl.log"
            for name in ("all_reduce", "all_gather", "broadcast")
        ),
        ("nccl.log",),
    ),
    "collective": Command(
        _collectives,
        (f"collective all_reduce 1KiB,1GiB {_ON_RANKS}", f"collective all_to_all 1MB {_ON_RANKS}",
         f"collective reduce_scatter 1MB {_ON_RANKS} --nccl-log @nccl.log"),
        ("system.toml", "nccl.log"),
    ),
    "switches": Command(_switches, ("waits @s.txt", "waits @s.txt --json"), ("s.txt",)),
    "switch-packets": Command(_switches, ("waits @s.pftrace",), ("s.pftrace",)),
    "hang": Command(_dumps, ("hang @dumps", "hang @dumps --json"), tuple(_dumps())),
    "job": Command(
        _job,
        (f"simulate @job {_ON}", f"simulate @job {_ON} --json", "info @job", "info --check @job",
         "fold @job -o @out.nadi", "fold @job --exact", "scale @job --dp 2 -o @large.nadi",
         "scale @job --cp 4 --system dgx-h100",
         "search gpt3-125m dgx-h100 --ranks 2 --global-batch 2 --top 1 --calibrate @job",
         "loggp @job --comm-group @groups.json --latency 2us --overhead 1us --gap 0ns --gap-per-byte 50GB/s",
         "learn @job -o @model.nadi"),
        ("job/w.0.et", "job/w.1.et", "groups.json"),
    ),
    "calculon": Command(
        _estimates,
        ("estimate @app.json @sys.json @exe.json --compat calculon",
         "estimate @app.json @sys.json @exe.json",
         "estimate @app.json @sys.json @exe.json --sweep tensor_par=4,8"),
        ("app.json", "sys.json", "exe.json"),
    ),
    "estimate": Command(
        _estimates,
        ("estimate @model.json dgx-h100 @plan.json", "estimate @model.json @system.toml --dp 8",
         "estimate gpt3-125m @system.toml @plan.json",
         "estimate @model.json dgx-h100 --pp 4 --ends-as-layers --lora 8",
         "generate llm --model @model.json --pp 4 --ends-as-layers --lora 8",
         "search @model.json dgx-h100 --ranks 4 --global-batch 4 --top 1"),
        ("model.json", "plan.json", "system.toml"),
    ),
    "placement": Command(
        _estimates,
        ("memory place @plan.toml --system @system.toml --place @place.json",
         "memory place @plan.toml --system dgx-h100-cxl --place @place.csv"),
        ("plan.toml", "place.json", "place.csv", "system.toml"),
    ),
    "generate": Command(
        _generated,
        ("generate llm --model @model.json --tp 2 --dp 2 --stats",
         "generate llm --model @model.json --pp 2 -o @out.nadi",
         "generate network --model @network.toml --ranks 2 --system dgx-h100", f"memory offload opt-6.7b @t4.toml {_POLICY}"),
        ("model.json", "network.toml", "t4.toml"),
    ),
    "schedules": Command(
        _saved,
        ("draw timeline @run.log @run.json", "draw timeline @s.csv @t.json", "draw timeline @s.csv @t.pftrace",
         "loggp @job.goal --latency 2us --overhead 1us --gap 0ns --gap-per-byte 50GB/s",
         "loggp @job.goal --latency 2us --overhead 1us --gap 0ns --gap-per-byte 6ns --json"),
        ("run.log", "s.csv", "job.goal"),
    ),
    "predictions": Command(
        _saved,
        ("report @s.json @s.json -o @page.html", "simulate @s.nadi",
         "report @s.json -o @page.html", "report @s.nadi -o @page.html", "info @s.nadi",
         "simulate @s.nadi --json", "draw timeline @s.nadi @t.json"),
        ("s.json", "s.nadi"),
    ),
    "own-models": Command(
        _models,
        ("fold --undo @folded.nadi -o @ranks", "simulate @folded.nadi --system pcie-workstation --comm-group @groups.json",
         "synthesize @model.nadi -o @made",
         "synthesize @model.nadi -o @made --times @model.nadi",
         "synthesize @generator.nadi -o @made --hidden 512 --ranks 4 --tp 2",
         "learn --conditions @listed.csv -o @own.nadi",
         "learn --conditions @listed.csv --epsilon 1 --device h100 --generated 3 -o @own.nadi",
         "synthesize @private.nadi -o @made --ranks 2 --tp 1", "info @folded.nadi",
         "synthesize @model.nadi -o @made --ranks 4 --steps 3 --seed 2", "info --check @folded.nadi",
         "synthesize @model.nadi -o @made --hidden 300", "similarity @folded.nadi @folded.nadi"),
        ("folded.nadi", "model.nadi", "generator.nadi", "listed.csv", "private.nadi",
         "listed.csv.privacy.json", "model.nadi"),
    ),
    "results": Command(
        _summaries,
        ("report @out -o @page.html", "report @out @simulation.json -o @page.html"),
        ("out/summary.json", "simulation.json"),
    ),
    "recording": Command(
        _recordings,
        ("run @job", "run @job --json --step 1 -o @out", "waits @job", "info @job", "run @merged.json",
         "info --check @job", "critical-path @job", "critical-path @job --rules hta", "diff @job @job",
         ("check @job @pair --baseline @job --capture @job --budget 'step 3 %' --budget 'aten::mm 1us' "
          "--markdown @check.md --junit @check.xml"),
         "link @job -o @linked", "link @job -o @linked --resume", *(f"{one} --capture @job" for one in (
             "run @pair", "what-if @pair", "waits @job", "critical-path @pair", "diff @pair @job",
             "analyze rates @pair", "report @pair -o @page.html")),
         "extract @job --step 1 -o @part", "run @pair", "what-if @job",
         "draw graph @job -o @graph.dot", "run @job --report @page.html", "link @pair -o @pair.et",
         *(f"{one} --executor concurrent.futures:ThreadPoolExecutor" for one in (
             "run @job", "waits @job", "critical-path @job", "diff @job @pair")),
         "simulate @job --system dgx-h100", "convert @job @nadi --to nadi",
         *(f"analyze {name} @job" for name in (
             "all", "queue-series", "rates", "memory", "launch-list", "stacks", "bandwidth",
             "modules", "temporal", "collective-list", "full-queues", "operators", "contention",
             "compiled", "slowdown", "experts"))),
        ("job/device_0.json", "job/device_1.json", "merged.json", "pair/host_0.json"),
    ),
    "operation-table": Command(
        _operation_table,
        ("analyze slowdown @table.csv", "analyze ideal-timeline @table.csv",
         "analyze slowdown @table.parquet"),
        ("table.csv", "table.parquet"),
    ),
    "shared-ranks": Command(
        _shared_ranks,
        ("simulate @fake --system pcie-workstation", "info @fake", "fold @fake -o @f.nadi"),
        ("fake/ranks.json", "fake/ranks.json", "fake/rank.0.nadi"),
    ),
}  # fmt: skip
"""By name; each is a target of its own."""
