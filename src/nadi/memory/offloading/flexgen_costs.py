"""FlexGen's cost model: inference whose weights, cache and activations lie on GPU, CPU and disk.

A block of sequences goes through the layers batch by batch; while one layer computes, the weights
of the next one are loaded. Times of a layer are linear in the shares of weights, of keys and values
("cache"), and of activations ("hidden") that lie in each memory; so are the bytes of each memory.
The terms are those of FlexGen's ``experimental/cost_model.py`` (FMInference/FlexGen at 19753bc) for
models in which each head has keys and values of its own; for others the sizes of a layer take their
place.

Machines for offloaded inference as users write them: quantities with units.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from nadi.errors import FormatError, Parameter, UsageError
from nadi.files.settings_text import convert_settings, parse_settings
from nadi.models.llm.language_model import LanguageModel
from nadi.trace.arrays import Floats
from nadi.units import parse_bytes, parse_operations, parse_rate

_MOST_TOKENS = 1 << 24  # beyond, numbers of a solver are too large for each other
# bounds beyond which products of numbers in a file would be infinite
_Rate = Annotated[float, Meta(ge=1, le=1e30)]
_Size = Annotated[float, Meta(ge=0, le=1e30)]
_Share = Annotated[float, Meta(ge=1e-6, le=1000)]

NUM_COLUMNS = 10
"""Of a block's program: eight shares, and the times of a layer in both phases."""
NAMES = (
    "weights_gpu", "weights_cpu", "weights_disk", "cache_gpu", "cache_cpu", "cache_disk",
    "hidden_gpu", "hidden_cpu",
)  # fmt: skip
PREFILL = ("loads", "stores", "computation")
"""What the time of a layer in prefill is the longest of."""
DECODE = ("stores of activations", "reads of disk", "writes to disk", "computation")
"""What the time of a layer in decode is the longest of, after its loads."""
_UNIT = np.eye(NUM_COLUMNS + 1)  # the last one is the number 1


class Inference(NamedTuple):
    """What a model computes for prompts of one length, in 16 bits.

    Attributes
    ----------
    prompt, generated
        Tokens of each sequence: read, and written.
    layers, hidden, heads
        Of the model.
    ffn
        Inner width of an MLP, all of its matrices for the input taken together.
    weight_bytes
        Of a layer.
    token_flops
        Operations of a layer's linear layers for one token.
    cache_bytes
        Keys and values of one token in a layer.
    """

    prompt: int
    generated: int
    layers: int
    hidden: int
    heads: int
    ffn: int
    weight_bytes: float
    token_flops: float
    cache_bytes: float


class OffloadMachine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Memories, what moves between them, and what computes; bytes, bytes/s and operations/s.

    Attributes
    ----------
    gpu_memory, cpu_memory, disk
        Sizes in bytes.
    usable_gpu, usable_cpu, usable_disk
        Share of each that a placement may fill. More than 1 allows for bytes that are counted
        and not used.
    cpu_to_gpu
        Weights and activations.
    gpu_to_cpu_cache, gpu_to_cpu_hidden
        Keys and values, which move in small pieces; and activations.
    disk_to_cpu
        Reads of all kinds.
    cpu_to_disk_cache, cpu_to_disk_decode
        Writes of keys and values of a prompt; writes of one token.
    prefill_matmul, prefill_attention, decode_matmul, decode_attention
        What a GPU reaches in each phase.
    cpu_attention
        What the CPU reaches in attention over keys and values that it holds.
    batch_slope, width_slope, joint_slope
        By how much less the CPU reaches for each halving of the batch below 64, of the width
        below 4,096, and how much both together give back.
    """

    gpu_memory: _Size
    cpu_memory: _Size
    disk: _Size
    cpu_to_gpu: _Rate
    gpu_to_cpu_cache: _Rate
    gpu_to_cpu_hidden: _Rate
    disk_to_cpu: _Rate
    cpu_to_disk_cache: _Rate
    cpu_to_disk_decode: _Rate
    prefill_matmul: _Rate
    prefill_attention: _Rate
    decode_matmul: _Rate
    decode_attention: _Rate
    cpu_attention: _Rate
    usable_gpu: _Share = 0.8
    usable_cpu: _Share = 0.8
    usable_disk: _Share = 0.8
    batch_slope: _Size = 0.0
    width_slope: _Size = 0.0
    joint_slope: _Size = 0.0

    @property
    def usable(self) -> Floats:
        """Bytes that a placement may fill: float64, shape (3,); GPU, CPU and disk."""
        shares = np.array([self.usable_gpu, self.usable_cpu, self.usable_disk])
        found: Floats = np.array([self.gpu_memory, self.cpu_memory, self.disk]) * shares
        return found


class BlockCostLines(NamedTuple):
    """What a block takes, each line linear in the shares: float64, shape (lines, columns + 1).

    The last column is the constant.
    """

    # prefill, decode: lines that the time of a layer in each phase is the largest of, in seconds
    prefill: Floats
    decode: Floats
    memory: Floats  # bytes that must fit: GPU and CPU in both phases, and disk


def inference_of_model(model: LanguageModel, prompt: int, generated: int) -> Inference:
    """Describe the inference of a dense language model.

    Raises
    ------
    UsageError
        If the model has experts or latent attention, which the cost model does not know, or there
        are no tokens.
    """
    named = f"model {model.name!r}" if model.name else "the model"
    if model.moe is not None or model.mla is not None:
        met = "a mixture of experts" if model.moe is not None else "multi-head latent attention"
        raise UsageError(
            named, f"it has {met}, and FlexGen's cost model is that of dense layers with plain "
            "attention", "take a dense model",
        )  # fmt: skip
    for name, count in (("prompt", prompt), ("generate", generated)):
        if not 1 <= count <= _MOST_TOKENS:
            raise UsageError(
                Parameter(name, count), "not a number of tokens", f"state 1 to {_MOST_TOKENS:,}"
            )
    linears = (*model.attention_linears(), *model.mlp_linears())
    matrices = sum(one.inputs * one.outputs for one in linears)
    return Inference(
        prompt, generated, model.layers, model.hidden, model.heads,
        model.ffn * (2 if model.gated else 1), 2.0 * matrices, 2.0 * matrices,
        4.0 * model.kv_heads * model.head_dim,
    )  # fmt: skip


def block_cost_lines(
    asked: Inference, machine: OffloadMachine, batch: int, num_batches: int
) -> BlockCostLines:
    """Give the costs of a block of ``batch * num_batches`` sequences.

    Names of shares begin with w, c and h for weights, cache and hidden, and end with the memory.
    """
    block = batch * num_batches
    _, w_cpu, w_disk, c_gpu, c_cpu, c_disk, _, h_cpu, _, _, one = _UNIT
    weight = asked.weight_bytes
    token = 2.0 * asked.hidden * block  # activations of a token of each sequence
    cached = asked.cache_bytes * block
    scores = 4.0 * block * asked.hidden  # operations of attention for each pair of tokens
    context = asked.prompt + asked.generated / 2
    moved = weight * (w_cpu + w_disk)
    prompts = token * asked.prompt * h_cpu
    to_gpu = (moved + prompts) / machine.cpu_to_gpu
    of_disk = weight * w_disk / machine.disk_to_cpu
    kept = cached * (asked.prompt + 1)
    to_cpu = (
        kept * (c_cpu + c_disk) / machine.gpu_to_cpu_cache + prompts / machine.gpu_to_cpu_hidden
    )
    to_disk = kept * c_disk / machine.cpu_to_disk_cache
    compute = block * asked.prompt * asked.token_flops / machine.prefill_matmul
    compute += scores * asked.prompt**2 / machine.prefill_attention
    prefill = np.array([to_gpu + of_disk, to_cpu + to_disk, compute * one])

    to_gpu = (moved + token * h_cpu) / machine.cpu_to_gpu
    # a read of weights reaches 95 % of what a read of keys and values does
    read = cached * context * c_disk + weight / 0.95 * w_disk
    attention = scores * context * c_gpu / machine.decode_attention
    attention = attention + scores * context * (c_cpu + c_disk) / _cpu_rate(asked, machine, batch)
    linear = block * asked.token_flops / machine.decode_matmul
    beside = [
        token * h_cpu / machine.gpu_to_cpu_hidden, read / machine.disk_to_cpu,
        cached * c_disk / machine.cpu_to_disk_decode, linear * one + attention,
    ]  # fmt: skip
    return BlockCostLines(prefill, to_gpu + np.array(beside), _memory_use(asked, batch, block))


def _cpu_rate(asked: Inference, machine: OffloadMachine, batch: int) -> float:
    """Give what the CPU reaches, less for small batches and narrow models."""
    fewer = max(0.0, math.log2(64 / batch))
    narrower = max(0.0, math.log2(4096 / asked.hidden))
    share = 1 + machine.joint_slope * fewer * narrower
    share -= machine.batch_slope * fewer + machine.width_slope * narrower
    return machine.cpu_attention * max(0.1, share)


def _memory_use(asked: Inference, batch: int, block: int) -> Floats:
    """Give the bytes on GPU and CPU in prefill, then in decode, then on disk."""
    w_gpu, w_cpu, w_disk, c_gpu, c_cpu, c_disk, h_gpu, h_cpu, _, _, one = _UNIT
    prompt, length = asked.prompt, asked.prompt + asked.generated
    weight, width, scores = asked.weight_bytes, 2.0 * asked.hidden, 2.0 * asked.heads
    cached = asked.cache_bytes
    all_weights, token = weight * asked.layers, width * block
    all_cached = cached * block * asked.layers
    # queries, keys and values with their input; output of attention with its input; MLP
    linear = 2 * width + cached + 2 * width + 2.0 * asked.ffn + width
    working = batch * prompt * (linear + width + scores * prompt + width)
    loading = 2 * weight * (one - w_gpu)
    home = all_weights * w_gpu + all_cached * length * c_gpu
    waiting = width * batch * (one - h_gpu)
    gpu_prefill = home + token * prompt * h_gpu + loading + prompt * waiting + working * one
    attended = batch * (2 * width + cached * length + scores * length) * c_gpu
    gpu_decode = home + token * h_gpu + loading + waiting + batch * linear * one + attended
    gpu_decode = gpu_decode + cached * batch * length * c_gpu
    cpu_prefill = all_weights * w_cpu + token * prompt * h_cpu + all_cached * prompt * c_cpu
    cpu_prefill = cpu_prefill + weight * (one - w_gpu) + prompt * waiting
    cpu_decode = all_weights * w_cpu + token * h_cpu + all_cached * length * c_cpu
    cpu_decode = cpu_decode + weight * w_disk + 2 * cached * length * batch * c_disk
    cpu_decode = cpu_decode + (scores * length + width) * batch * one
    disk = all_weights * w_disk + all_cached * length * c_disk
    return np.array([gpu_prefill, cpu_prefill, gpu_decode, cpu_decode, disk])


_SIZES = ("gpu_memory", "cpu_memory", "disk")
_OPERATIONS = (
    "prefill_matmul", "prefill_attention", "decode_matmul", "decode_attention", "cpu_attention",
)  # fmt: skip
_TEXTS = ("about", "source")  # for people


def parse_offload_machine(content: bytes, suffix: str, name: str) -> OffloadMachine:
    """Read the description of a machine, in TOML, YAML or JSON.

    - Raises FormatError if it is invalid; the message names the path in it.
    """
    settings = parse_settings(content, suffix, name, "machine")
    if not isinstance(settings, dict):
        raise FormatError(name, "it has no keys", "docs/offload.md lists them")
    values = {key: value for key, value in settings.items() if key not in _TEXTS}
    for field in msgspec.structs.fields(OffloadMachine):
        parse = _parser(field.name)
        if parse is not None and field.name in values:
            values[field.name] = _quantity(name, field.name, values[field.name], parse)
    return convert_settings(values, OffloadMachine, name, _remedy)


def _parser(key: str) -> Callable[[str], float] | None:
    if key in _SIZES:
        return parse_bytes
    if key in _OPERATIONS:
        return parse_operations
    return parse_rate if "_to_" in key else None


def _quantity(name: str, key: str, text: Any, parse: Callable[[str], float]) -> float:
    if not isinstance(text, str):
        raise FormatError(f"{name}: $.{key}", f"{text!r} has no unit", 'write it as "15 GiB"')
    try:
        return parse(text)
    except ValueError as error:
        raise FormatError(f"{name}: $.{key}", str(error), "give another one") from None


def _remedy(what: str, path: str) -> str:
    if "unknown field" in what:
        keys = [field.name for field in msgspec.structs.fields(OffloadMachine)]
        return f"known keys: {', '.join(keys)}"
    where = path.removeprefix("$.") or "it"
    return f"docs/offload.md says what {where} is" if "missing" not in what else "state it"
