"""The fastest policy of offloaded inference: what lies where, fills memories and takes time."""

from collections.abc import Iterator
from typing import Any

from nadi.memory.offloading.flexgen_policy import OffloadPolicy
from nadi.memory.offloading.offloaded_inference import OffloadAnswer
from nadi.results.declared import BLANK, Column, Lines, Result, Rows, in_words, text_of
from nadi.units import format_bytes, format_count, format_counted, format_ns, format_number

_TENSORS = {"weights": "weights", "cache": "keys and values", "hidden": "activations"}
_MEMORIES = ("gpu", "cpu", "disk")
_Rows = Iterator[tuple[tuple[()], dict[str, Any]]]


def _described(answer: OffloadAnswer) -> dict[str, Any]:
    """Describe the fastest policy; times are seconds, rates tokens a second."""
    asked, usable, policy = answer.inference, answer.machine.usable.tolist(), answer.policy
    sequences, length = policy.batch * policy.num_batches, asked.prompt + asked.generated
    return {
        "prompt": asked.prompt,
        "generated": asked.generated,
        "layers": asked.layers,
        "programs": answer.num_programs,
        "usable_bytes": dict(zip(_MEMORIES, usable, strict=True)),
        "tensor_bytes": {
            "weights": asked.weight_bytes * asked.layers,
            "cache": asked.cache_bytes * length * sequences * asked.layers,
            "hidden": 2.0 * asked.hidden * asked.prompt * sequences,
        },
        "policy": _policy(policy),
        "flexgen": _policy(answer.flexgen),
        "in_percent": _policy(answer.in_percent),
    }


def _policy(policy: OffloadPolicy | None) -> dict[str, Any] | None:
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


def _headline(data: dict[str, Any]) -> str:
    policy = data["policy"]
    sequences = format_counted(policy["batch"] * policy["num_batches"], "sequence")
    return (
        f"{format_number(policy['rate'])} tokens/s: {_batches(policy)} at once, {sequences} in "
        f"{_time(policy['seconds'])}"
    )


def _batches(policy: dict[str, Any]) -> str:
    batches = format_counted(policy["num_batches"], "batch", "es")
    return f"{batches} of {format_count(policy['batch'])}"


def _time(seconds: float) -> str:
    return format_ns(round(seconds * 1e9))


def _places(data: dict[str, Any]) -> _Rows:
    """Yield the shares of each kind of tensor in each memory, and its bytes."""
    shares = data["policy"]["shares"]
    for kind, name in _TENSORS.items():
        where = {one: shares.get(f"{kind}_{one}", 0.0) for one in _MEMORIES}
        yield (), where | {"name": name, "all": data["tensor_bytes"][kind]}


def _filled(data: dict[str, Any]) -> _Rows:
    """Yield the bytes in each memory, in both phases."""
    memory = data["policy"]["memory"]
    for one, name in zip(_MEMORIES, ("GPU", "CPU", "disk"), strict=True):
        prompts, tokens = (memory[phase].get(one, memory["disk"]) for phase in
                           ("prefill", "decode"))  # fmt: skip
        yield (), {"name": name, "prompts": prompts, "tokens": tokens,
                   "usable": data["usable_bytes"][one]}  # fmt: skip


def _phases(data: dict[str, Any]) -> _Rows:
    """Yield the time of each phase, and what bounds it."""
    policy, layers = data["policy"], data["layers"]
    for name, phase, times in (("prompts", "prefill", layers),
                               ("tokens", "decode", layers * (data["generated"] - 1))):  # fmt: skip
        seconds = policy[f"{phase}_seconds"]
        yield (), {"name": name, "layer": seconds, "all": seconds * times,
                   "longest": policy["bounds"][phase]}  # fmt: skip


def _others(data: dict[str, Any]) -> Iterator[str]:
    """Say what FlexGen's search would find, and what to tell FlexGen."""
    best, theirs, whole = data["policy"], data["flexgen"], data["in_percent"]
    if theirs or whole:
        yield ""
    if theirs:
        found = (
            f"FlexGen's search finds {format_number(theirs['rate'])} tokens/s with "
            f"{_batches(theirs)}"
        )
        gain = best["rate"] / theirs["rate"] - 1
        yield f"{found}: {100 * gain:.1f} % are gained" if gain > 5e-4 else f"{found}, too"
    if whole:
        names = ("weights_gpu", "weights_cpu", "cache_gpu", "cache_cpu", "hidden_gpu", "hidden_cpu")
        percent = " ".join(f"{100 * whole['shares'][name]:.0f}" for name in names)
        yield (
            f"in whole percentages {format_number(whole['rate'])} tokens/s: "
            f"--gpu-batch-size {whole['batch']} "
            f"--num-gpu-batches {whole['num_batches']} --percent {percent}"
        )


_SHARE = text_of(lambda share: f"{100 * share:.1f} %")
_BYTES = text_of(lambda size: format_bytes(round(size)))

OFFLOAD = Result(
    kind="offload", title="Offloaded inference", order=89, facts=_described, headline=_headline,
    parts=(
        BLANK,
        Rows("", "What lies where", None, (
            Column("name", "tensors"), Column("gpu", "GPU", _SHARE), Column("cpu", "CPU", _SHARE),
            Column("disk", "disk", _SHARE), Column("all", "all", _BYTES),
        ), made=_places),
        BLANK,
        Rows("", "Bytes in each memory, while prompts are read and tokens generated", None, (
            Column("name", "memory"), Column("prompts", "prompts", _BYTES),
            Column("tokens", "tokens", _BYTES), Column("usable", "usable", _BYTES),
        ), made=_filled),
        BLANK,
        Rows("", "Time of a block", None, (
            Column("name", "phase"), Column("layer", "a layer", text_of(_time)),
            Column("all", "all", text_of(_time)), Column("longest", "longest", in_words(str)),
        ), made=_phases),
        Lines(_others),
    ),
)  # fmt: skip
