"""``nadi attack``: how often attacks on obfuscated jobs succeed."""

import sys
from typing import Annotated

import typer

from nadi.results.terminal.options import AsJson, output_console

HELP = """Attack obfuscated jobs, and print how often that succeeds.

Jobs of the models are generated with random parallel layouts, sequences, micro-batches
and devices, and obfuscated at each level. The attacker has other jobs of the same
models, original and obfuscated with other keys. The attacker guesses the model of a job,
its size, which releases belong together, and whether it is among the jobs that the attacker
has. Level model is a model that nadi learn makes of half of the jobs, and level synthetic
has jobs that it made: the attacker guesses which jobs it was learned from. Chance is the
score of the most common answer. Each job is obfuscated twice at each level, which takes
seconds: progress says how long is left.

[bold]Examples[/]

  nadi attack
  nadi attack --level structure --jobs 20
  nadi attack --model llama3-8b --model qwen3-8b --level shapes
"""


def command(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", show_default=False,
                     help="A language model that ships with Nadi; repeatable. By default five of "
                     "1 to 13 billion parameters."),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", metavar="LEVEL", show_default=False,
                     help="names, shapes, structure, private, model or synthetic; repeatable. By "
                     "default all."),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=2, help="Jobs of each model."),
    ] = 4,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of layouts, durations and keys."),
    ] = 0,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Attack, and print the accuracy of each attack at each level against chance."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="attack", counts="jobs") as progress:
        progress("starting")
        from nadi.results.text import to_json
        from nadi.sharing.attacks.attacked_jobs import (
            ATTACKED_LEVELS,
            ATTACKED_MODELS,
            attack,
            print_attacks,
        )

        found = attack(model or ATTACKED_MODELS, level or ATTACKED_LEVELS, jobs, seed, progress)
    if as_json:
        sys.stdout.write(to_json(found.to_dicts()).decode())
        return
    print_attacks(found, output_console())
