"""What a server is asked to do, on what, and within which limits: the fields of a question."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from nadi.errors import Parameter, UsageError
from nadi.units import lowered

_Count = Annotated[int, Meta(ge=1, le=1 << 20)]
_OrNone = Annotated[int, Meta(ge=0, le=1 << 20)]
_Many = Annotated[int, Meta(ge=1, le=1 << 26)]
_Whole = Annotated[int, Meta(ge=0, le=1 << 40)]
_Positive = Annotated[float, Meta(ge=0, le=1e12)]
_Dtype = Literal["float16", "bfloat16", "float32", "float8_e4m3fn"]
_Share = Annotated[float, Meta(ge=0, le=1)]


class ServerSetup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server and its requests; what is 0 or empty is not limited, or not there.

    Attributes
    ----------
    requests
        A file of requests (:func:`read_requests`), instead of drawn ones.
    rate, concurrency
        Requests a second, or requests that are always under way (closed loop).
    input, output, spread
        Tokens of prompts and of answers in the mean, and the standard deviation of their
        (lognormal) lengths as a share of it.
    number
        How many requests are drawn.
    burst
        Standard deviation of the time between arrivals as a share of its mean: 1 Poisson, 0
        steady.
    prefix, groups
        Tokens with which all prompts of a group begin, and how many groups there are.
    turns, think
        Requests of a session, each of which begins with all of the one before it, and seconds
        between them.
    tp, pp, ep
        Ranks of an instance: tensor parallel, stages, and those that share experts.
    replicas, prefill_replicas
        Instances, and further ones that only read prompts: the others then generate.
    prefill_tp, prefill_pp, prefill_ep, prefill_attention_dp
        Ranks of those that only read prompts; 0: as of the others.
    attention_dp
        Groups of ranks of an instance that each have requests of their own (data parallel
        attention), step together, and share the experts.
    dtype, kv_dtype
        Of weights and activations, as in torch; of keys and values, by default as activations.
    weight_bits
        Of a weight of the layers, 4 or 8: products read them so, and compute as ``dtype``. 0: as
        ``dtype``.
    budget, sequences, block
        Of a step: tokens, and requests, at most, of each group of ``attention_dp``; tokens of a
        block of keys and values.
    blocks
        Of an instance, or of each group; 0: what its memory has room for.
    memory_share, reserved
        Share of a device's memory that is used; bytes of it that are neither weights nor keys
        and values. Its default is what a vLLM run on an RTX 4090 had.
    overlap, reserve, prefix_caching, graphs
        Whether the next step is prepared while one runs; whether a request waits until all of its
        prompt has room; whether prompts that begin alike share blocks; whether steps are padded
        to the sizes of CUDA graphs.
    routing
        Who takes a request: ``turns``, ``least`` (requests) or ``session``.
    host_us, launch_us
        Of the host's part of a step; what it takes to launch each operation of the layers in a step
        that reads prompts, of which there is no CUDA graph.
    wait_steps, wait_share
        Steps for which prompts wait at most for more of them, while other requests generate, and
        the share of the budget from which they do not wait (batch_wait_timeout_iters and
        batch_wait_max_tokens_ratio of TensorRT-LLM). With groups of ``attention_dp``, until each of
        them has a prompt (timeout_iters of its attention_dp_config), and that share.
    drafts, acceptance
        Tokens that a step guesses for each request (speculative decoding), and the chance that a
        guess is right. A step of the drafting model is a part of ``host_us``.
    measured
        A folder of measured times of layers (:func:`profiled_times`), or a recording of a serving
        engine, as a file or a folder (:func:`read_recorded_steps`); else steps are priced.
    tiers
        Memories behind the devices': names of the system's, or such as ``pool=1TB@64GB/s``, of
        which all instances have one, or ``pool=1TB@64GB/s:2``, of which each two have one.
    link
        Bytes a second of a rank on a link of its own from instances that read prompts to those
        that generate; 0: over the network, with the collectives.
    ttft_ms, tpot_ms, e2e_ms
        Limits, for goodput: until the first token, between tokens, and until the last.
    seeds
        How often requests are drawn.
    """

    requests: str = ""
    rate: _Positive = 0.0
    concurrency: _Whole = 0
    input: _Many = 1024
    output: _Many = 256
    spread: Annotated[float, Meta(ge=0, le=10)] = 0.0
    number: _Many = 1000
    burst: Annotated[float, Meta(ge=0, le=100)] = 1.0
    prefix: _Whole = 0
    groups: _Count = 1
    turns: _Count = 1
    think: _Positive = 0.0
    tp: _Count = 1
    pp: _Count = 1
    ep: _Count = 1
    attention_dp: _Count = 1
    replicas: _Count = 1
    prefill_replicas: _OrNone = 0
    prefill_tp: _OrNone = 0
    prefill_pp: _OrNone = 0
    prefill_ep: _OrNone = 0
    prefill_attention_dp: _OrNone = 0
    dtype: _Dtype = "bfloat16"
    kv_dtype: _Dtype | Literal[""] = ""
    weight_bits: Literal[0, 4, 8] = 0
    budget: Annotated[int, Meta(ge=1, le=1 << 20)] = 2048
    sequences: Annotated[int, Meta(ge=1, le=1 << 16)] = 256
    block: Annotated[int, Meta(ge=1, le=1 << 16)] = 16
    blocks: Annotated[int, Meta(ge=0, le=1 << 28)] = 0
    memory_share: _Share = 0.9
    reserved: _Positive = 1.25e9
    overlap: bool = True
    reserve: bool = True
    prefix_caching: bool = True
    graphs: bool = True
    routing: Literal["turns", "least", "session"] = "turns"
    host_us: Annotated[float, Meta(ge=0, le=1e8)] = 0.0  # or the end of a run may be beyond 64 bits
    launch_us: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    wait_steps: _Whole = 0
    wait_share: _Share = 0.0
    drafts: Annotated[int, Meta(ge=0, le=64)] = 0
    acceptance: _Share = 0.0
    measured: str = ""
    tiers: tuple[str, ...] = ()
    link: _Positive = 0.0
    ttft_ms: _Positive = 0.0
    tpot_ms: _Positive = 0.0
    e2e_ms: _Positive = 0.0
    seeds: Annotated[int, Meta(ge=1, le=1000)] = 1

    def check(self) -> None:
        """Raise UsageError for values that do not go together."""
        loads = [bool(self.requests), self.rate > 0, self.concurrency > 0]
        if sum(loads) != 1:
            raise UsageError(
                [Parameter("requests"), ", ", Parameter("rate"), ", ", Parameter("concurrency")],
                "one of them says which requests come", "give one of the three",
            )  # fmt: skip
        if self.tiers and not self.prefix_caching:
            raise UsageError(
                Parameter("tiers"), "blocks in tiers are found by their content, as prefixes are",
                "leave prefix caching on",
            )  # fmt: skip
        if self.prefix > self.input:
            raise UsageError(
                Parameter("prefix", self.prefix), f"prompts have {self.input} tokens",
                "give as many or fewer",
            )  # fmt: skip
        if self.drafts and not self.acceptance:
            raise UsageError(
                Parameter("drafts", self.drafts), "without a chance that guesses are right",
                ["give ", Parameter("acceptance"), ", such as 0.7"],
            )  # fmt: skip
        given, lacks = ("wait_steps", "wait_share")[:: 1 if self.wait_steps else -1]
        is_enough = given == "wait_steps" and self.attention_dp > 1
        if getattr(self, given) and not (getattr(self, lacks) or is_enough):
            raise UsageError(
                Parameter(given, getattr(self, given)),
                "prompts wait until a step has enough tokens, and for some steps at most",
                ["give ", Parameter(lacks), ", too"],
            )  # fmt: skip
        if self.wait_steps and self.prefill_replicas:
            raise UsageError(
                Parameter("wait_steps", self.wait_steps),
                "prompts wait while others generate, and instances that read prompts do not",
                ["leave it, or ", Parameter("prefill_replicas"), ", away"],
            )  # fmt: skip
        for name in ("prefill_tp", "prefill_pp", "prefill_ep", "prefill_attention_dp", "link"):
            own = getattr(self, name)
            if own and not self.prefill_replicas:
                raise UsageError(
                    Parameter(name, own), "no instances only read prompts",
                    ["give ", Parameter("prefill_replicas")],
                )  # fmt: skip
        if self.measured and self.of_prefill.degrees != self.degrees:
            raise UsageError(
                Parameter("measured"), "it is of instances of one kind",
                "let those that read prompts have the degrees of the others",
            )  # fmt: skip

    @property
    def degrees(self) -> tuple[int, int, int, int]:
        """How ranks of an instance share its work."""
        return self.tp, self.pp, self.ep, self.attention_dp

    @property
    def of_prefill(self) -> ServerSetup:
        """The same with all instances like those that only read prompts."""
        return msgspec.structs.replace(
            self, tp=self.prefill_tp or self.tp, pp=self.prefill_pp or self.pp,
            ep=self.prefill_ep or self.ep,
            attention_dp=self.prefill_attention_dp or self.attention_dp,
        )  # fmt: skip

    @property
    def holders(self) -> int:
        """Devices of an instance that have a part of each request's keys and values."""
        return self.tp * self.pp

    @property
    def ranks(self) -> int:
        """Devices of an instance."""
        return self.holders * self.attention_dp

    @property
    def devices(self) -> int:
        """Devices of all instances."""
        return self.ranks * self.replicas + self.of_prefill.ranks * self.prefill_replicas

    @property
    def instances(self) -> int:
        """All of them."""
        return self.replicas + self.prefill_replicas

    @property
    def reading_groups(self) -> int:
        """Groups of all instances that only read prompts."""
        return self.of_prefill.attention_dp * self.prefill_replicas

    @property
    def all_groups(self) -> int:
        """Groups of all instances, each of which has requests of its own."""
        return self.reading_groups + self.attention_dp * self.replicas


def setup_of(values: dict[str, Any]) -> ServerSetup:
    """Make a setup of fields by name.

    Raises
    ------
    UsageError
        If one is unknown, or has no such value.
    """
    known = {field.name: field for field in msgspec.structs.fields(ServerSetup)}
    for name, value in values.items():
        if name not in known:
            raise UsageError(
                Parameter(name), "there is no such field", f"known: {', '.join(known)}"
            )
        try:
            msgspec.convert(value, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(Parameter(name, value), lowered(str(error)), "give another") from None
    found = msgspec.convert(values, ServerSetup, strict=False)
    found.check()
    return found
