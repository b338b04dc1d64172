"""What a generator was learned from, and how well that comes back."""

from collections.abc import Iterator
from typing import Any

from nadi.results.declared import ALL, LABEL, Column, Lines, Result, Rows, text_of
from nadi.sharing.conditional.conditional_model import ConditionalModel
from nadi.sharing.conditional.generators import PrivateLearning
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


def _described_privately(learned: tuple[PrivateLearning, int]) -> dict[str, Any]:
    found, size = learned
    private = found.model.private
    assert private is not None  # what was learned privately has it
    return {
        "file_bytes": size, "epsilon": private.epsilon, "delta": private.delta,
        "spent": found.spent, "learned_jobs": found.jobs, "noisy_jobs": round(private.size),
        "public_jobs": len(found.model.jobs), "device": private.device,
        "protected": private.protected,
        "ledger": [
            {
                "what": one.what, "sums": len(one.values), "sensitivity": one.sensitivity**0.5,
                "noise": one.variance**0.5, "rho": float(one.rho),
                "noise_of_job": (one.variance / one.sensitivity) ** 0.5,
            }
            for one in private.releases
        ],
    }  # fmt: skip


def _promises(data: dict[str, Any]) -> Iterator[str]:
    yield (
        f"epsilon {data['epsilon']:.3g}, with delta {data['delta']:g}; all models of the table "
        f"together: epsilon {data['spent']:.3g}"
    )
    yield f"protected: {data['protected']}"
    jobs, noise = data["learned_jobs"], data["ledger"][0]["noise"]
    if jobs == 1:
        yield (
            "of one job nothing can be learned privately: the noise is larger than all that it "
            "adds, and the model is that of generated jobs; nadi obfuscate makes a job that may be "
            "shared, and does not promise that nobody recognizes it"
        )
    elif jobs < _FEW * noise:
        yield (
            f"few jobs: the noise of each count is {noise:.0f} jobs, and there are {jobs:,}; the "
            "model is nearly that of generated jobs: learn more jobs, or state a larger epsilon"
        )


_FEW = 4  # times the noise
_PLAIN = text_of(lambda value: f"{value:.4g}")
LEARNED_PRIVATELY = Result(
    kind="privately learned generator", title="Privately learned generator", order=98,
    facts=_described_privately, headline=None,
    parts=(
        Rows("", "released sums", None, (
            Column("what", "of", LABEL, "what is summed over the jobs"),
            Column("sums", "sums", text_of(format_count)),
            Column("noise_of_job", "noise / job", _PLAIN, "standard deviation of the noise, as a "
                   "multiple of the longest vector that a job adds"),
            Column("rho", "rho", _PLAIN, "what is spent of zero-concentrated privacy"),
        ), top=ALL, made=lambda data: [
            (("ledger", i), row) for i, row in enumerate(data["ledger"])
        ]),
        Lines(_promises),
    ),
)  # fmt: skip
"""Made of what was learned, and of the bytes of its file."""
