"""What a model of traces was learned from."""

from collections.abc import Iterator
from typing import Any

from nadi.results.declared import ALL, LABEL, Column, Lines, Result, Rows, text_of
from nadi.sharing.synthesis.learned_model import TraceModel
from nadi.units import format_count

_JOB = ("ranks", "roles", "steps", "layers", "hidden")


def _described(learned: tuple[TraceModel, int]) -> dict[str, Any]:
    """Describe the jobs of a model, and how large it and its file are."""
    model, size = learned
    return {
        "file_bytes": size,
        "operations": len(model.tokens),
        "rules": len(model.rules),
        "contexts": sum(one.context.size for one in model.counts),
        "jobs": [
            {
                "ranks": one.num_ranks, "roles": len(one.roles), "steps": one.num_steps,
                "layers": one.num_layers, "has_stated_layers": one.has_stated_layers,
                "hidden": one.hidden,
            }
            for one in model.templates
        ],
    }  # fmt: skip


def _sizes(data: dict[str, Any]) -> Iterator[str]:
    words = {"operations": "different operations", "rules": "repeats", "contexts": "contexts"}
    yield ", ".join(f"{format_count(data[name])} {word}" for name, word in words.items())


_OR_NONE = text_of(lambda count: format_count(count) if count else "-")
_BY = text_of(lambda is_stated: "names" if is_stated else "repeats")
LEARNED = Result(
    kind="learned", title="Learned model", order=98, facts=_described, headline=None,
    parts=(
        Rows("", "learned", None, (
            Column("job", "job", LABEL), *(Column(key, key, _OR_NONE) for key in _JOB),
            Column("has_stated_layers", "layers by", _BY, "whether names of operations or modules "
                   "say which layers they are; else the longest repeat is taken"),
        ), top=ALL, made=lambda data: [
            (("jobs", i), job | {"job": i + 1}) for i, job in enumerate(data["jobs"])
        ]),
        Lines(_sizes),
    ),
)  # fmt: skip
"""Made of the model, and of the bytes of its file."""
