"""Jobs with their conditions, to learn from: generated ones, and those that a table lists."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from nadi.errors import InputError
from nadi.files.files import locate, read_file
from nadi.models.llm.generated_jobs import llm_job
from nadi.models.llm.language_model import LanguageModel, MixtureOfExperts
from nadi.recordings.jobs import given_job
from nadi.sharing.conditional.stage_values import (
    AXES,
    EXPERTS,
    LABEL,
    OF_EXPERTS,
    SHARED,
    Conditions,
)
from nadi.trace.trace import Job, Trace

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt": {"norm": "layernorm", "gated": False, "attention_bias": True, "mlp_bias": True,
            "position": "learned", "tied_embeddings": True,
            "qk_norm": False},
    "llama": {"norm": "rmsnorm", "gated": True, "attention_bias": False, "mlp_bias": False,
              "position": "rope", "tied_embeddings": False,
              "qk_norm": False},
    "qwen": {"norm": "rmsnorm", "gated": True, "attention_bias": False, "mlp_bias": False,
             "position": "rope", "tied_embeddings": True, "qk_norm": True},
    "opt": {"norm": "layernorm", "gated": False, "attention_bias": True, "mlp_bias": True,
            "position": "learned", "tied_embeddings": False,
            "qk_norm": False},
    "falcon": {"norm": "layernorm", "gated": False, "attention_bias": False, "mlp_bias": False,
               "position": "rope", "tied_embeddings": True, "qk_norm": False},
}  # fmt: skip
"""Forms of decoders, after published models of the name."""
_OF_MODEL = (
    "hidden", "layers", "heads", "head_dim", "kv_heads", "ffn", "vocab", "max_positions", "norm",
    "gated", "attention_bias", "mlp_bias", "position", "tied_embeddings", "qk_norm",
)  # fmt: skip
MIXED = "mixed"  # forms that no family has together, so that what each does can be told apart
_MOST_DIGITS = 19
_REMEDY = "give a CSV file: a row for each job, its path in the column job, and conditions"
_WORLD = 16  # ranks of a generated job at most


class Ranges(NamedTuple):
    """From what generated jobs are drawn.

    Attributes
    ----------
    hidden, stage_layers, sequence, micro_batch, micro_batches
        Least and most; of sequences powers of 2.
    ranks
        Along each axis, at most.
    families
        Their names; other jobs have a form that is drawn freely.
    experts
        Least and most experts of a layer, powers of 2; without them layers are dense.
    sharing
        Ranks that share the experts of a layer, at most.
    """

    hidden: tuple[int, int] = (256, 4096)
    stage_layers: tuple[int, int] = (1, 4)
    sequence: tuple[int, int] = (256, 4096)
    micro_batch: tuple[int, int] = (1, 4)
    micro_batches: tuple[int, int] = (1, 6)
    ranks: int = 8
    families: tuple[str, ...] = tuple(FAMILIES)
    experts: tuple[int, int] | None = None
    sharing: int = 1


USUAL_RANGES = Ranges()


def drawn_conditions(random: np.random.Generator, ranges: Ranges = USUAL_RANGES) -> Conditions:
    """Draw the conditions of a training step of a decoder; forms and axes vary independently."""
    while True:
        known = _drawn(random, ranges)
        ranks = [int(known[axis]) for axis in AXES]
        tp, keys = ranks[0], int(known["kv_heads"])
        shared = tp % keys == 0 or keys % tp == 0  # else tensor parallel ranks cannot share them
        if np.prod(ranks) <= _WORLD and int(known["heads"]) % tp == 0 and shared:
            return known


def _drawn(random: np.random.Generator, ranges: Ranges) -> Conditions:
    def one_of(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    def power(low: int, high: int) -> int:
        return int(2 ** random.integers(low.bit_length() - 1, high.bit_length()))

    family = one_of(*ranges.families, MIXED)
    form = FAMILIES.get(family) or {
        name: one_of(*(of[name] for of in FAMILIES.values())) for name in FAMILIES["gpt"]
    }
    head_dim = one_of(32, 64, 128)
    low, high = ranges.hidden
    hidden = 128 * int(random.integers(-(-low // 128), high // 128 + 1))
    heads = 8 * int(random.integers(1, max(hidden // head_dim // 8, 1) * 2 + 1))
    tp, dp, pp = power(1, ranges.ranks), power(1, ranges.ranks), power(1, min(4, ranges.ranks))
    cp = one_of(1, 1, 1, 2, 4) if ranges.ranks >= 4 else one_of(1, 1, 1, ranges.ranks)
    layers = int(random.integers(pp * ranges.stage_layers[0], pp * ranges.stage_layers[1] + 1))
    micro_batch = int(random.integers(ranges.micro_batch[0], ranges.micro_batch[1] + 1))
    sequence = power(*ranges.sequence)
    number = int(random.integers(ranges.micro_batches[0], ranges.micro_batches[1] + 1))
    of_experts: Conditions = {}
    if ranges.experts:
        width = tp * 64 * int(random.integers(hidden // tp // 256 + 1, hidden // tp // 32 + 2))
        of_experts = {EXPERTS: power(*ranges.experts), "top_k": one_of(1, 2), "expert_ffn": width}
    found: Conditions = {
        "family": family, **form, "hidden": hidden,
        "layers": layers, "heads": heads, "head_dim": head_dim,
        "kv_heads": one_of(heads, heads, heads // 2, heads // 4, 2), "ffn": tp * 64 * int(
            random.integers(hidden // tp // 64 + 1, 4 * hidden // tp // 64 + 2)),
        "vocab": 128 * int(random.integers(64, 1024)),
        "max_positions": sequence * one_of(1, 2), "sequence": sequence,
        "tp": tp, "cp": cp, "dp": dp, "pp": pp, "zero": int(random.integers(0, 4)),
        "sequence_parallel": bool(random.integers(2)) and tp > 1, "micro_batch": micro_batch,
        "global_batch": dp * micro_batch * number, "schedule": one_of("1f1b", "gpipe"),
        "recompute": one_of("none", "none", "selective", "full"),
        "attention": one_of("flash", "flash", "unfused"), **of_experts,
    }  # fmt: skip
    if of_experts and ranges.sharing > 1:
        most = min(ranges.sharing, int(of_experts[EXPERTS]), tp * cp * dp)  # all powers of 2
        found |= {SHARED: power(1, most)}
        found["sequence_parallel"] = tp > 1 and (
            int(found[SHARED]) > 1 or bool(found["sequence_parallel"])
        )
    return found


def generated_job(known: Conditions) -> Job:
    """Make the job of drawn conditions, as ``nadi generate llm`` does."""
    of_experts = {name: int(known[name]) for name in (EXPERTS, *OF_EXPERTS) if name in known}
    moe = msgspec.convert(of_experts, MixtureOfExperts) if of_experts else None
    form: dict[str, Any] = {name: known[name] for name in _OF_MODEL}
    model = LanguageModel(**form, moe=moe)
    other = (*_OF_MODEL, *of_experts, LABEL)
    plan: dict[str, Any] = {name: value for name, value in known.items() if name not in other}
    return llm_job(model, **plan)


def generated_jobs(
    count: int, seed: int = 0, ranges: Ranges = USUAL_RANGES
) -> Iterator[tuple[Job, Conditions, str]]:
    """Make training steps of drawn conditions, each with these and what to call it."""
    random = np.random.default_rng(seed)
    for number in range(count):
        known = drawn_conditions(random, ranges)
        yield generated_job(known), known, f"generated job {number + 1}"


def listed_jobs(table: Path | str) -> Iterator[tuple[Job | Sequence[Trace], Conditions, str]]:
    """Read the jobs that a table lists, with their conditions.

    - ``table``: A CSV file with a row for each job: ``job``, its path from the table's folder, and
      a column for each condition. Whole numbers are numbers, ``true`` and ``false`` say whether
      something holds, and other values are words; an empty one is not known.
    - Raises InputError if the table or a job cannot be read.
    """
    place = locate(table)
    text = read_file(place).content.tobytes()
    try:
        # not by DictReader, which gives each row all columns, also those that it has not
        header, *rows = [row for row in csv.reader(io.StringIO(text.decode())) if row] or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(table), f"it is no table: {error}", _REMEDY) from None
    if not rows or "job" not in header:
        raise InputError(str(table), "it lists no jobs in a column job", _REMEDY)
    for number, values in enumerate(rows, 2):
        where = f"{table}, line {number}"
        row = dict(zip(header, values, strict=False))
        path = row.pop("job", "")
        if not path or len(values) != len(header):
            raise InputError(where, "it has another number of values than the header", _REMEDY)
        known = {name: condition_of(value) for name, value in row.items() if value}
        yield given_job(place.parent / path), known, where


def condition_of(text: str) -> int | str | bool:
    """Return the value that a text stands for."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else text
