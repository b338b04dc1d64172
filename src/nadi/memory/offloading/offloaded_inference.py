"""Offloaded inference from names and files: the fastest policy, and what others would give.

Load machines for offloaded inference by name, from those shipped with Nadi or from files.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from nadi.errors import UsageError
from nadi.files.shipped_files import Shelf
from nadi.memory.offloading.flexgen_costs import (
    Inference,
    OffloadMachine,
    inference_of_model,
    parse_offload_machine,
)
from nadi.memory.offloading.flexgen_policy import (
    FREE,
    OffloadPolicy,
    SharesGiven,
    best_policy,
    needed_bytes,
    place_block,
)
from nadi.models.llm.language_model import load_language_model
from nadi.units import format_bytes

_SHELF = Shelf(
    "offload", "machine", "nadi memory offload MODEL t4 uses the one that ships with Nadi"
)


def offload_machine_text(name: str) -> str:
    """Return the file of a machine shipped with Nadi, to copy and edit.

    Raises
    ------
    UsageError
        If no machine has this name; the message lists them.
    """
    return _SHELF.text(name)


def load_offload_machine(path_or_name: Path | str) -> OffloadMachine:
    """Load the description of a machine for offloaded inference.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a machine shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the path in it.
    UsageError
        If no machine has this name; the message lists them.
    """
    return parse_offload_machine(*_SHELF.described(path_or_name))


_MEMORIES = ("GPU memory", "CPU memory", "disk")


class OffloadQuestion(NamedTuple):
    """What is asked of a model and a machine.

    Attributes
    ----------
    prompt, generated
        Tokens of each sequence.
    batch, num_batches
        Fixed numbers; None for the best.
    shares
        Fixed shares of weights on GPU and CPU, then of cache, then of hidden.
    sizes
        Bytes of ``gpu_memory``, ``cpu_memory`` or ``disk`` that are not those of the machine.
    """

    prompt: int = 512
    generated: int = 32
    batch: int | None = None
    num_batches: int | None = None
    shares: SharesGiven = FREE
    sizes: dict[str, int] = {}  # noqa: RUF012  never changed


class OffloadAnswer(NamedTuple):
    """The fastest policy of a model on a machine.

    Attributes
    ----------
    inference, machine
        What was asked, as values.
    policy
        The fastest.
    flexgen
        What FlexGen's way to search finds; None if it finds nothing, or was not tried.
    in_percent
        The same batches with whole percentages, as FlexGen's options take them; None if none fit.
    num_programs
        Linear programs that were solved.
    """

    inference: Inference
    machine: OffloadMachine
    policy: OffloadPolicy
    flexgen: OffloadPolicy | None
    in_percent: OffloadPolicy | None
    num_programs: int


def offload_inference(
    model: Path | str, machine: Path | str, question: OffloadQuestion, *, compat: str = ""
) -> OffloadAnswer:
    """Find the fastest way to run a model whose tensors lie on GPU, CPU and disk.

    Parameters
    ----------
    model, machine
        Names, or files.
    compat
        ``flexgen`` to search as FlexGen does, and nothing else.

    Raises
    ------
    InputError, UsageError
        If a file or a name is not valid, a number is not possible, or nothing fits; then the
        message says by how much.
    """
    asked = inference_of_model(load_language_model(model), question.prompt, question.generated)
    described = load_offload_machine(machine)
    described = msgspec.structs.replace(described, **question.sizes)
    numbers = question.batch, question.num_batches, question.shares
    found = best_policy(asked, described, *numbers, compat=compat)
    if found.policy is None:
        raise _does_not_fit(str(model), asked, described, question)
    policy, programs = found.policy, found.num_programs
    theirs = None
    if not compat and None in numbers[:2]:
        search = best_policy(asked, described, *numbers, compat="flexgen")
        theirs, programs = search.policy, programs + search.num_programs
    whole = place_block(
        asked, described, policy.batch, policy.num_batches, question.shares, whole_percent=True
    )
    return OffloadAnswer(asked, described, policy, theirs, whole, programs)


def _does_not_fit(
    model: str, asked: Inference, machine: OffloadMachine, question: OffloadQuestion
) -> UsageError:
    """Say what the smallest block that was asked for needs of each memory."""
    batch, number = question.batch or 1, question.num_batches or 1
    needed = needed_bytes(asked, machine, batch, number, question.shares)
    shares = (machine.usable_gpu, machine.usable_cpu, machine.usable_disk)
    sizes = (machine.gpu_memory, machine.cpu_memory, machine.disk)
    enough = [
        f"{format_bytes(round(bytes_ / share))} of {name} ({format_bytes(round(size))} now)"
        for name, bytes_, share, size in zip(_MEMORIES, needed, shares, sizes, strict=True)
        if bytes_ < float("inf")
    ]
    block = f"{number} x {batch} sequences" if batch * number > 1 else "one sequence"
    return UsageError(
        f"model {model!r}", f"{block} of {asked.prompt} and {asked.generated} tokens and the "
        "weights do not fit into the machine's memories",
        f"enough is {' or '.join(enough)}" if enough else
        "no memory of any size alone is enough: give more of two, or a smaller batch",
    )  # fmt: skip
