"""``nadi generate llm``: the job of a language model, spread over any number of ranks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.models.llm.options import (
    Attention,
    Chunks,
    Cp,
    Dp,
    Dtype,
    EndsAsLayers,
    Ep,
    GlobalBatch,
    Inference,
    Lora,
    MicroBatch,
    Pp,
    Recompute,
    Schedule,
    Seq,
    Sp,
    Tp,
    Zero,
)
from nadi.results.terminal.options import AsJson, JobOutput, Overwrite, SimulatedOn, output_console

if TYPE_CHECKING:
    from nadi.jobs.job_output import Wishes
    from nadi.models.llm.language_model import LanguageModel
    from nadi.models.llm.parallel_plan import ParallelPlan

HELP = """Generate a training or inference step of a language model on many ranks.

The model is one that ships with Nadi (--model list prints their names) or a file in
TOML, YAML or JSON. Prints a summary of the job, with --stats its FLOPs, communication
and memory in full, with --system also what a simulation of it says, and with -o writes
a Chakra trace per rank.
docs/generate-llm.md says what each operation and schedule is.

[bold]Examples[/]

  nadi generate llm --model llama3-8b --tp 2 --dp 4 --system dgx-h100
  nadi generate llm --model gpt3-175b --tp 8 --pp 16 --dp 8 --global-batch 1536 --stats
  nadi generate llm --model mixtral-8x7b --tp 2 --dp 4 --ep 8 -o JOB
"""

_Model = Annotated[
    str, typer.Option("--model", metavar="NAME|FILE", show_default=False,
                      help="A model that ships with Nadi, or a file; list prints the names."),
]  # fmt: skip


_ExpertTp = Annotated[
    int, typer.Option("--expert-tp", metavar="N", show_default="1 with --ep, else as --tp",
                      help="Ranks that share an expert: 1, or as many as --tp."),
]  # fmt: skip
_Prefix = Annotated[
    int, typer.Option("--prefix", metavar="TOKENS", min=0, show_default="0",
                      help="With --inference: first tokens that all sequences share, whose keys "
                      "and values are there."),
]  # fmt: skip
_Stats = Annotated[
    bool, typer.Option("--stats", help="Print memory of each stage by component, FLOPs by phase, "
                       "and communication by group and type."),
]  # fmt: skip


def llm(
    model: _Model,
    tp: Tp = 1, pp: Pp = 1, dp: Dp = 1, cp: Cp = 1, ep: Ep = 1, expert_tp: _ExpertTp = 0,
    zero: Zero = 1, sp: Sp = None, micro_batch: MicroBatch = 0, global_batch: GlobalBatch = 0,
    seq: Seq = 0, schedule: Schedule = "1f1b", chunks: Chunks = 1,
    ends_as_layers: EndsAsLayers = False,
    recompute: Recompute = "none", attention: Attention = "flash", dtype: Dtype = "bfloat16",
    inference: Inference = "", lora: Lora = 0, prefix: _Prefix = 0,
    stats: _Stats = False, system: SimulatedOn = "",
    output: JobOutput = "", overwrite: Overwrite = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Generate the job, print what it amounts to, and simulate or write it if asked."""
    if model == "list":
        from nadi.models.llm.language_model import shipped_language_models

        sys.stdout.write("\n".join(shipped_language_models()) + "\n")
        return
    from nadi.jobs.job_output import Wishes
    from nadi.models.llm.generated_jobs import checked_plan

    fields = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "expert_tp": expert_tp, "zero": zero,
        "sequence_parallel": sp, "micro_batch": micro_batch, "global_batch": global_batch,
        "sequence": seq, "schedule": schedule, "chunks": chunks,
        "ends_as_layers": ends_as_layers, "recompute": recompute,
        "attention": attention, "dtype": dtype, "inference": inference, "prefix": prefix,
        "lora": lora,
    }  # fmt: skip
    described, plan = checked_plan(model, fields)
    _generate(described, plan, Wishes(system, output, overwrite), stats=stats, as_json=as_json)


def _generate(
    model: LanguageModel, plan: ParallelPlan, wishes: Wishes, *, stats: bool, as_json: bool
) -> None:
    from nadi.jobs.generated.result import GENERATED, GENERATED_IN_FULL
    from nadi.jobs.job_output import make_job
    from nadi.models.llm.generated_jobs import job_of_model, statistics_of

    job, done = make_job(lambda: job_of_model(model, plan), plan.world_size, wishes)
    data = GENERATED.data((statistics_of(model, plan, job), done))
    (GENERATED_IN_FULL if stats else GENERATED).tell(data, as_json=as_json)
    if wishes.output and not as_json:
        output_console().print(wishes.told(plan.world_size), markup=False)
