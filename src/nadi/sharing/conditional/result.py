"""What a generator was learned from, and how well that comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nadi.results.declared import ALL, LABEL, Column, Lines, Result, Rows
from nadi.sharing.conditional.conditional_model import ConditionalModel
from nadi.sharing.conditional.wished_conditions import learned_range
from nadi.units import format_count


def _described(learned: tuple[ConditionalModel, int]) -> dict[str, Any]:
    model, size = learned
    fit = model.fit
    return {
        "file_bytes": size, "jobs": len(model.jobs), "templates": len(model.templates),
        "stages": fit.stages, "stages_alike": fit.stages_alike, "laws": fit.laws,
        "laws_alike": fit.laws_alike,
        "conditions": [
            {"condition": name, "learned": _range(values), "values": values}
            for name, values in learned_range(model).items()
        ],
    }  # fmt: skip


def _range(values: list[Any]) -> str:
    if all(isinstance(one, int) and not isinstance(one, bool) for one in values):
        least, most = format_count(values[0]), format_count(values[-1])
        return least if values[0] == values[-1] else f"{least} to {most}"
    return ", ".join(str(one).lower() if isinstance(one, bool) else str(one) for one in values)


def _fit(data: dict[str, Any]) -> Iterator[str]:
    jobs, templates = format_count(data["jobs"]), format_count(data["templates"])
    yield f"{jobs} jobs, {templates} templates of operations"
    yield (
        f"of the learned jobs come back: {format_count(data['stages_alike'])} of "
        f"{format_count(data['stages'])} stages with all operations in their order, "
        f"{format_count(data['laws_alike'])} of {format_count(data['laws'])} laws of sizes within "
        "0.1 %"
    )


LEARNED_GENERATOR = Result(
    kind="learned generator", title="Learned generator", order=98, facts=_described, headline=None,
    parts=(
        Rows("", "conditions", None, (
            Column("condition", "condition", LABEL),
            Column("learned", "learned", LABEL, "values of the learned jobs"),
        ), top=ALL, made=lambda data: [
            (("conditions", i), row) for i, row in enumerate(data["conditions"])
        ]),
        Lines(_fit),
    ),
)  # fmt: skip
"""Made of the generator, and of the bytes of its file."""
