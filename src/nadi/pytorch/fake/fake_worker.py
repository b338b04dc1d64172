"""The process of a rank: ``python -m nadi.pytorch.fake.fake_worker`` runs a user's program."""

import importlib
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from nadi.errors import NadiError
from nadi.files.trace_files import write
from nadi.pytorch.fake.fake_trace import (
    RankSummary,
    check_torch,
    fake_recording,
    summary_of,
    trace_signature,
)
from nadi.pytorch.fake.operation_log import is_of_library


class FakeOrder(msgspec.Struct):
    """What is to be recorded."""

    # rank, world_size, steps, warmup, device: as for ``fake_recording``
    rank: int
    world_size: int
    steps: int
    warmup: int
    device: str
    command: list[str]  # a script or ``-m`` and a module, and their arguments
    output: str  # the trace; the outcome is written beside it, with the suffix ``.json``


_MOST_AT_ONCE = 4
_IMPORTED = ("nadi.pytorch.fake.fake_program", "torch.distributed.tensor.parallel",
             "torch.distributed.fsdp")  # fmt: skip


class Outcome(msgspec.Struct):
    """What came of it: an error, or a summary and the process groups of the job."""

    error: str = ""
    where: str = ""
    remedy: str = ""
    signature: str = ""
    steps: int = 0
    summary: RankSummary | None = None
    issues: list[tuple[str, str, int, str, str]] = []
    families: dict[str, list[tuple[int, ...]]] = {}


_REMEDIES = {
    "DynamicOutputShapeException":
        "the size of a result depends on values, which fake tensors do not have: use operators "
        "whose results have fixed sizes, or a capacity",
    "DataDependentOutputException":
        "the program needs a value, which fake tensors do not have",
    "UnsupportedOperatorException":
        "the operator has no implementation for tensors without data: register one with "
        "torch.library.register_fake",
}  # fmt: skip


def record_orders() -> None:
    """Record the ranks of each list of orders that standard input has; answer each with a line.

    What is imported is there for all of them: each is recorded in a fork of this process.
    """
    try:
        check_torch()
        for name in _IMPORTED:
            importlib.import_module(name)
        ready = b""
    except NadiError as error:
        ready = str(error).encode()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    answers.write(ready + b"\n")
    at_once = min(_MOST_AT_ONCE, os.cpu_count() or 1)
    for line in sys.stdin.buffer:
        running: set[int] = set()
        for order in msgspec.json.decode(line, type=list[FakeOrder]):
            if len(running) == at_once:
                running.discard(os.wait()[0])
            running.add(_started(order))
        while running:
            running.discard(os.wait()[0])
        answers.write(b"\n")


def _started(order: FakeOrder) -> int:
    """Record in a fork of this process, what it prints beside the trace; return its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        printed = os.open(str(Path(order.output).with_suffix(".log")), os.O_CREAT | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        outcome = _outcome(order)
        Path(order.output).with_suffix(".json").write_bytes(msgspec.json.encode(outcome))
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _outcome(order: FakeOrder) -> Outcome:
    try:
        with fake_recording(
            order.world_size, order.rank, steps=order.steps, warmup=order.warmup,
            device=order.device,
        ) as recording:  # fmt: skip
            _run(order.command)
    except NadiError as error:
        return Outcome(error.what, error.where, error.remedy)
    except SystemExit as error:
        return Outcome(f"the program ended with exit code {error.code}", "",
                       "see what it printed")  # fmt: skip
    except Exception as error:
        traceback.print_exc()
        return _failed(error)
    trace = recording.trace
    write(trace, order.output, to="nadi")
    return Outcome(
        signature=trace_signature(trace),
        steps=recording.num_steps,
        summary=summary_of(trace),
        issues=trace.issues.rows(),
        families={name: one.groups for name, one in recording.families.items()},
    )


def _run(command: list[str]) -> None:
    """Run a script or a module as the main program."""
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path.insert(0, str(Path(command[0]).resolve().parent))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise


def _failed(error: Exception) -> Outcome:
    """Tell an error of the program in one line, with the line of the program."""
    lines = [
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not is_of_library(frame.filename)
    ]
    name = type(error).__name__
    text = " ".join(str(error).split())[:300]
    told: Any = _REMEDIES.get(name, "")
    return Outcome(f"{name}: {text}", lines[-1] if lines else "", told)


if __name__ == "__main__":
    record_orders()
