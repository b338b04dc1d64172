"""``nadi generate``: jobs that nobody recorded, of language models, of networks, and test cases."""

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
    ExpertTp,
    GlobalBatch,
    Inference,
    Lora,
    MicroBatch,
    Overlap,
    Pp,
    Recompute,
    Schedule,
    Seq,
    Sp,
    Tp,
    Zero,
)
from nadi.results.terminal.options import AsJson, JobOutput, Overwrite, SimulatedOn, output_console
from nadi.results.terminal.typer_internals import QuickCommand, QuickGroup

if TYPE_CHECKING:
    from nadi.jobs.job_output import Wishes
    from nadi.models.llm.language_model import LanguageModel
    from nadi.models.llm.parallel_plan import ParallelPlan


LLM_HELP = """Generate a training or inference step of a language model on many ranks.

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
    tp: Tp = 1, pp: Pp = 1, dp: Dp = 1, cp: Cp = 1, ep: Ep = 1, expert_tp: ExpertTp = 0,
    zero: Zero = 1, sp: Sp = None, micro_batch: MicroBatch = 0, global_batch: GlobalBatch = 0,
    seq: Seq = 0, schedule: Schedule = "1f1b", chunks: Chunks = 1,
    ends_as_layers: EndsAsLayers = False, overlap: Overlap = "none",
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
        "ends_as_layers": ends_as_layers, "recompute": recompute, "overlap": overlap,
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


NETWORK_HELP = """Generate a training or inference step of a network on many ranks.

The network is one that ships with Nadi (--model list prints their names): for images,
recommendations or diffusion; or a file of layers in TOML, YAML or JSON. Each rank has its
own samples; tables of recommendation models are shared by all ranks. Prints parameters,
FLOPs, memory and communication of the job, with --system also what a simulation of it
says, and with -o writes a Chakra trace per rank. docs/generate-networks.md says
what each layer is and how to describe a network.

[bold]Examples[/]

  nadi generate network --model resnet50 --ranks 8 --batch 256 --system dgx-h100
  nadi generate network --model dlrm-dcnv2 --ranks 16 --batch 4096 -o JOB
  nadi generate network --model stable-diffusion-unet --ranks 8 --batch 32 --zero 1
"""

_Network = Annotated[
    str, typer.Option("--model", metavar="NAME|FILE", show_default=False,
                      help="A network that ships with Nadi, or a file; list prints the names."),
]  # fmt: skip
_Ranks = Annotated[int, typer.Option("--ranks", metavar="N", help="Data parallel ranks.")]
_Batch = Annotated[
    int, typer.Option("--batch", metavar="SAMPLES", help="Samples of a step of one rank.")
]
_Zero = Annotated[
    int, typer.Option("--zero", metavar="0..3",
                      help="Sharded by ranks: 1 optimizer, 2 also gradients, 3 also weights."),
]  # fmt: skip
_Bucket = Annotated[
    int, typer.Option("--bucket", metavar="MIB",
                      help="Gradients that are reduced together, as bucket_cap_mb of DDP."),
]  # fmt: skip
_Inference = Annotated[
    bool, typer.Option("--inference", show_default=False, help="The forward alone.")
]


def network(
    model: _Network,
    ranks: _Ranks = 1, batch: _Batch = 1, zero: _Zero = 0, bucket: _Bucket = 25,
    dtype: Dtype = "bfloat16", inference: _Inference = False, system: SimulatedOn = "",
    output: JobOutput = "", overwrite: Overwrite = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Generate the job, print what it amounts to, and simulate or write it if asked."""
    if model == "list":
        from nadi.models.networks.network_plan import shipped_networks

        sys.stdout.write("\n".join(shipped_networks()) + "\n")
        return
    from nadi.jobs.generated.result import GENERATED_NETWORK
    from nadi.jobs.job_output import Wishes, make_job
    from nadi.models.networks.network_jobs import (
        job_of_network,
        planned_network,
        statistics_of_network,
    )
    from nadi.simulation.accounts.simulation_results import results_of

    found, plan = planned_network(
        model,
        {"ranks": ranks, "batch": batch, "zero": zero, "bucket": bucket, "dtype": dtype,
         "inference": inference},
    )  # fmt: skip
    wishes = Wishes(system, output, overwrite)
    job, done = make_job(lambda: job_of_network(found, plan), plan.ranks, wishes)
    results = None if done is None else results_of(done)
    data = GENERATED_NETWORK.data((statistics_of_network(found, plan, job), results))
    GENERATED_NETWORK.tell(data, as_json=as_json)
    if output and not as_json:
        output_console().print(wishes.told(ranks), markup=False)


HELP = """Generate jobs of models, or test cases, as Chakra traces.

To make a job of your own in Python: docs/generate.md.

[bold]Examples[/]

  nadi generate cases -o CASES --ranks 8
  nadi generate llm --model llama3-8b --tp 2 --dp 4 --system dgx-h100
  nadi generate network --model resnet50 --ranks 8 --batch 256 --system dgx-h100
"""
CASES_HELP = """Write small jobs, each of one kind of node, to test a simulator.

They are the fourteen kinds of chakra_generator, with matched sends and receives and the
same node ids on all ranks; and reduce, gather, scatter, a ring of messages, process
groups, and a node for each type of attribute. Each case is a folder: a .et per rank, and
comm_group.json. docs/generate.md lists them.

[bold]Examples[/]

  nadi generate cases -o CASES --ranks 8
  nadi simulate CASES/ALL_REDUCE --system dgx-h100
"""

generate = typer.Typer(cls=QuickGroup, rich_markup_mode="rich")
generate.command("llm", cls=QuickCommand, help=LLM_HELP)(llm)
generate.command("network", cls=QuickCommand, help=NETWORK_HELP)(network)


@generate.command("cases", cls=QuickCommand, help=CASES_HELP)
def cases(
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                          help="Where the folder of each case is made; it may be a URL."),
    ],
    ranks: Annotated[
        int, typer.Option("--ranks", metavar="N", help="Number of ranks, 2 to 4,096.")
    ] = 2,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Write the cases, and print what was written."""
    from rich.text import Text

    from nadi.models.standard_cases import CASES, cases
    from nadi.results.terminal.progress import show_progress
    from nadi.units import format_count, printable

    with show_progress(announce=False, use="generate") as progress:
        progress("writing cases")
        found = cases(output, ranks, overwrite=overwrite)
    console = output_console(wraps=False)
    width = max(map(len, found))
    for name in found:
        console.print(Text(f"{name:{width}}  {CASES[name]}"))
    nodes = sum(files.nodes for files in found.values())
    told = f"{len(found)} cases of {ranks} ranks, {format_count(nodes)} nodes, in {output}"
    console.print(Text(printable(told)))
