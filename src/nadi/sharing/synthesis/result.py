"""What a model was learned from, and what was made of it, as data and as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from nadi.results.text import make_table, print_table
from nadi.sharing.synthesis.learned_model import TraceModel
from nadi.units import format_count

__all__ = ["describe_model", "print_model"]


def describe_model(model: TraceModel, size: int) -> dict[str, Any]:
    """Describe the jobs of a model, and how large it is; ``size`` is that of its file."""
    return {
        "file_bytes": size,
        "operations": len(model.tokens),
        "rules": len(model.rules),
        "contexts": sum(one.context.size for one in model.counts),
        "weights": model.transformer.num_weights if model.transformer else 0,
        "jobs": [
            {
                "ranks": one.num_ranks, "roles": len(one.roles), "steps": one.num_steps,
                "layers": one.num_layers, "hidden": one.hidden,
            }
            for one in model.templates
        ],
    }  # fmt: skip


def print_model(described: dict[str, Any], console: Console) -> None:
    """Print a row per job, and the size of the model."""
    columns = ("job", "ranks", "roles", "steps", "layers", "hidden")
    table = make_table("learned", **dict.fromkeys(columns, "right"))
    for number, job in enumerate(described["jobs"], 1):
        values = [format_count(job[name]) if job[name] else "-" for name in columns[1:]]
        table.add_row(str(number), *values)
    print_table(table, console)
    learned = "weights" if described["weights"] else "contexts"
    words = {"operations": "different operations", "rules": "repeats", learned: learned}
    sizes = (f"{format_count(described[name])} {word}" for name, word in words.items())
    console.print(", ".join(sizes), markup=False)
