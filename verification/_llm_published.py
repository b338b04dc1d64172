"""Steps of published models against Megatron's formula, and memory against what was measured."""

from __future__ import annotations

from _report import Checks, Tally
from msgspec.structs import replace

import nadi
from nadi.models import LanguageModel

__all__ = ["measured_memory", "megatron_formula"]

_LAYOUTS = [
    {"tp": 1, "dp": 2, "micro_batch": 2, "global_batch": 8},
    {"tp": 4, "dp": 1, "global_batch": 2},
    {"tp": 2, "pp": 4, "dp": 2, "global_batch": 16},
    {"tp": 4, "pp": 4, "sequence_parallel": False, "schedule": "gpipe", "global_batch": 8},
    {"tp": 2, "pp": 2, "cp": 2, "zero": 3, "global_batch": 4},
    {"pp": 2, "schedule": "interleaved", "chunks": 2, "global_batch": 8},
]
_WITHIN = 0.01


def megatron_formula(checks: Checks) -> None:
    """Compare a step's FLOPs with ``96 B s l h^2 (1 + s / 6h + V / 16lh)``.

    Narayanan et al., arXiv 2104.04473, equation 3: matrix products with each layer computed anew,
    and attention in three steps. Nadi's are with norms, softmax and loss, without the optimizer,
    which is no part of what the formula counts.
    """
    for name in nadi.models.shipped_language_models():
        if not name.startswith(("megatron-", "gpt3-")):
            continue
        model = nadi.models.load_language_model(name)
        errors = []
        for layout in _LAYOUTS:
            if model.heads % layout.get("tp", 1) or model.layers % layout.get("pp", 1):
                continue
            found = nadi.models.llm_statistics(
                model, **layout, recompute="full", attention="unfused"
            )
            step = found.total_flops - int(found.flops["optimizer"].sum()) * (
                found.world_size // found.flops.height
            )
            errors.append(step / _formula(model, int(layout["global_batch"])) - 1)
        detail = f"{100 * min(errors):+.3f} to {100 * max(errors):+.3f} %"
        held = sum(abs(error) <= _WITHIN for error in errors)
        checks.add_many(f"step of {name} and Megatron's formula", held, len(errors), detail)


def _formula(model: LanguageModel, batch: int) -> float:
    s, h, layers = model.sequence, model.hidden, model.layers
    return 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + model.vocab / (16 * layers * h))


# Rows that mbridge's memory_estimator (README.md, "Some result comparison") measured on 8 GPUs:
# tp, sequences of a micro-batch, GiB of weights, gradients and optimizer, GiB of activations
_MEASURED = [(2, 1, 5.3, 1.3), (2, 2, 5.3, 2.7), (1, 1, 8.8, 2.4), (1, 2, 8.8, 5.0)]
_COUNTED = 1_250_961_408  # parameters of a rank without tensor parallelism, as it prints them
_NEAR = 0.2  # GiB


def measured_memory(checks: Checks) -> None:
    """Compare the memory of a rank with what was measured: a small Mixtral, nothing recomputed.

    Its shape follows from the printed counts: 16 heads of 128, of keys 8, and 8 experts of width
    5440. A rank that is not tensor parallel has them all, and 7.5 bytes of each parameter are 6
    and 12 shared by 8 ranks: one expert parallel rank, one stage, data parallel all others.
    """
    model = _small_mixtral()
    rule = "mbridge counts neither routers nor the norms before attention"
    tally, left_out = Tally(), model.layers * (model.hidden * model.moe.experts + model.hidden)
    found = model.total_parameters
    tally.add(exact=found == _COUNTED, rule=rule if found - left_out == _COUNTED else "")
    checks.add_tally("parameters of the small Mixtral in mbridge", tally)
    for tp, micro_batch, of_model, of_activations in _MEASURED:
        row = nadi.models.llm_statistics(
            model, tp=tp, dp=8 // tp, expert_tp=tp, micro_batch=micro_batch
        ).memory.row(0, named=True)
        held = (row["weights"] + row["gradients"] + row["optimizer"]) / 2**30
        kept = row["activations"] / 2**30
        what = f"tp {tp}, {micro_batch} sequences"
        for part, found, measured in (
            ("weights, gradients and optimizer", held, of_model),
            ("activations", kept, of_activations),
        ):
            detail = f"{found:.2f} GiB, measured {measured}"
            checks.add(f"memory of {part}, {what}", abs(found - measured) <= _NEAR, detail)


def _small_mixtral() -> LanguageModel:
    mixtral = nadi.models.load_language_model("mixtral-8x7b")
    return replace(
        mixtral, name="mixtral-8x2b-small", layers=4, hidden=2048, heads=16, sequence=4096,
        moe=replace(mixtral.moe, expert_ffn=5440), published=None,
    )  # fmt: skip
