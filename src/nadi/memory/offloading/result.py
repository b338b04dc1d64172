"""Policies of offloaded inference, as data and as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.memory.offloading.flexgen_policy import OffloadPolicy
from nadi.memory.offloading.offloaded_inference import OffloadAnswer
from nadi.results.text import make_table, print_table
from nadi.units import format_bytes, format_count, format_ns, format_number

__all__ = ["describe_offload", "print_offload"]

_TENSORS = {"weights": "weights", "cache": "keys and values", "hidden": "activations"}
_MEMORIES = ("gpu", "cpu", "disk")


def describe_offload(answer: OffloadAnswer) -> dict[str, Any]:
    """Describe the fastest policy; times are seconds, rates tokens a second."""
    asked, usable = answer.inference, answer.machine.usable.tolist()
    return {
        "prompt": asked.prompt,
        "generated": asked.generated,
        "layers": asked.layers,
        "programs": answer.num_programs,
        "usable_bytes": dict(zip(_MEMORIES, usable, strict=True)),
        "policy": _described(answer.policy),
        "flexgen": _described(answer.flexgen),
        "in_percent": _described(answer.in_percent),
    }


def _described(policy: OffloadPolicy | None) -> dict[str, Any] | None:
    if policy is None:
        return None
    fields = policy._asdict()
    fields["bounds"] = dict(zip(("prefill", "decode"), policy.bounds, strict=True))
    prompts, tokens = policy.memory[:2], policy.memory[2:4]
    fields["memory"] = {
        "prefill": dict(zip(_MEMORIES, prompts, strict=False)),
        "decode": dict(zip(_MEMORIES, tokens, strict=False)),
        "disk": policy.memory[4],
    }
    return fields


def print_offload(answer: OffloadAnswer, console: Console) -> None:
    """Print the rate, what lies where, what fills the memories, and what takes the time."""
    policy = answer.policy
    number = policy.batch * policy.num_batches
    sequences = f"{format_count(number)} sequence{'' if number == 1 else 's'}"
    console.print(
        Text(
            f"{format_number(policy.rate)} tokens/s: {_batches(policy)} at once, {sequences} in "
            f"{format_ns(round(policy.seconds * 1e9))}\n"
        )
    )
    _print_shares(answer, console)
    _print_memory(answer, console)
    _print_times(answer, console)
    _print_others(answer, console)


def _batches(policy: OffloadPolicy) -> str:
    many = "" if policy.num_batches == 1 else "es"
    return f"{format_count(policy.num_batches)} batch{many} of {format_count(policy.batch)}"


def _print_shares(answer: OffloadAnswer, console: Console) -> None:
    asked, policy = answer.inference, answer.policy
    sequences = policy.batch * policy.num_batches
    length = asked.prompt + asked.generated
    sizes = {
        "weights": asked.weight_bytes * asked.layers,
        "cache": asked.cache_bytes * length * sequences * asked.layers,
        "hidden": 2.0 * asked.hidden * asked.prompt * sequences,
    }
    columns = {"tensors": "left", "GPU": "right", "CPU": "right", "disk": "right", "all": "right"}
    table = make_table("What lies where", **columns)
    for kind, name in _TENSORS.items():
        shares = [policy.shares.get(f"{kind}_{memory}", 0.0) for memory in _MEMORIES]
        table.add_row(
            name, *(f"{100 * share:.1f} %" for share in shares), format_bytes(round(sizes[kind]))
        )
    print_table(table, console)


def _print_memory(answer: OffloadAnswer, console: Console) -> None:
    columns = {"memory": "left", "prompts": "right", "tokens": "right", "usable": "right"}
    table = make_table("\nBytes in each memory, while prompts are read and tokens generated",
                       **columns)  # fmt: skip
    gpu, cpu, gpu_later, cpu_later, disk = (round(one) for one in answer.policy.memory)
    rows = {"GPU": (gpu, gpu_later), "CPU": (cpu, cpu_later), "disk": (disk, disk)}
    for (name, pair), usable in zip(rows.items(), answer.machine.usable, strict=True):
        table.add_row(name, *map(format_bytes, pair), format_bytes(round(usable)))
    print_table(table, console)


def _print_times(answer: OffloadAnswer, console: Console) -> None:
    policy, asked = answer.policy, answer.inference
    columns = {"phase": "left", "a layer": "right", "all": "right", "longest": "left"}
    table = make_table("\nTime of a block", **columns)
    phases = {
        "prompts": (policy.prefill_seconds, asked.layers),
        "tokens": (policy.decode_seconds, asked.layers * (asked.generated - 1)),
    }
    for (name, (seconds, times)), bound in zip(phases.items(), policy.bounds, strict=True):
        shown = [format_ns(round(one * 1e9)) for one in (seconds, seconds * times)]
        table.add_row(name, *shown, bound)
    print_table(table, console)


def _print_others(answer: OffloadAnswer, console: Console) -> None:
    """Say what FlexGen's search would find, and what to tell FlexGen."""
    best, theirs, whole = answer.policy, answer.flexgen, answer.in_percent
    lines = []
    if theirs is not None:
        rate = format_number(theirs.rate)
        found = f"FlexGen's search finds {rate} tokens/s with {_batches(theirs)}"
        gain = best.rate / theirs.rate - 1
        lines.append(f"{found}: {100 * gain:.1f} % are gained" if gain > 5e-4 else f"{found}, too")
    if whole is not None:
        shares = whole.shares
        names = ("weights_gpu", "weights_cpu", "cache_gpu", "cache_cpu", "hidden_gpu", "hidden_cpu")
        percent = " ".join(f"{100 * shares[name]:.0f}" for name in names)
        lines.append(
            f"in whole percentages {format_number(whole.rate)} tokens/s: "
            f"--gpu-batch-size {whole.batch} "
            f"--num-gpu-batches {whole.num_batches} --percent {percent}"
        )
    for line in lines:
        console.print(Text(f"\n{line}" if line is lines[0] else line), soft_wrap=True)
