"""Language models that Nadi generates work of, against what their authors published.

Usage: python verification/llm_workloads.py [PART ...]

Parts, all by default:

``parameters``
    The number of parameters of every model that ships with Nadi, from its shape alone, equals the
    published one: exactly where weights are published, within the rounding of the source else.
    So do the parameters that a token uses, and those of multi-token prediction, where stated.
``calculon``
    FLOPs of each operation of a layer equal Calculon's, forward and backward.
``formula``
    A step of each GPT-3 and Megatron model is within 1 % of Megatron's formula, in six layouts.
``aicb``, ``llm-analysis``, ``stg``
    Bytes of collectives equal AICB's, weights, gradients, optimizer state and FLOPs
    llm-analysis's, and collectives and matrix products the Symbolic Tensor Graph's.
``memory``
    The memory of a rank is within 0.2 GiB of what was measured (mbridge).

What another program assumes otherwise is counted apart, by reason, and only if the difference is
just what the reason says: ``explained``. The goldens are the other programs' outputs as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from _llm_aicb import aicb
from _llm_analysis import llm_analysis
from _llm_calculon import calculon
from _llm_published import measured_memory, megatron_formula
from _llm_stg import symbolic_tensor_graph
from _report import Checks, run_parts

import nadi


def parameters(checks: Checks) -> None:
    """Compare each model's parameters with the published count."""
    for name in nadi.models.shipped_language_models():
        model = nadi.models.load_language_model(name)
        stated = model.published
        if stated is None:
            checks.add(f"{name}: a published count", False)
            continue
        found = model.total_parameters
        close = abs(found - stated.parameters) <= stated.tolerance
        shown = f"{found:,}" if not stated.tolerance else f"{found:,} for {stated.parameters:,}"
        checks.add(f"parameters of {name}", close, shown)
        if stated.active:
            found = model.active_parameters(embedding=stated.active_embedding)
            close = abs(found - stated.active) <= stated.active_tolerance
            checks.add(f"those a token uses in {name}", close, f"{found:,} for {stated.active:,}")
        if stated.mtp:
            found = model.mtp_parameters().total
            close = abs(found - stated.mtp) <= stated.mtp_tolerance
            checks.add(f"multi-token prediction of {name}", close, f"{found:,} for {stated.mtp:,}")


PARTS: dict[str, Callable[[Checks], None]] = {
    "parameters": parameters,
    "calculon": calculon,
    "formula": megatron_formula,
    "aicb": aicb,
    "llm-analysis": llm_analysis,
    "stg": symbolic_tensor_graph,
    "memory": measured_memory,
}


if __name__ == "__main__":
    run_parts(PARTS)
