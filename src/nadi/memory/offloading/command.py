"""``nadi memory offload``: inference of a model that is larger than the GPU's memory."""

from typing import Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import AsJson

HELP = """Find the fastest inference of a model larger than the GPU.

Finds the batch, the number of batches for each load of the weights, and the shares of
weights, keys and values, and activations on GPU, CPU and disk, by FlexGen's cost model
as a linear program. MODEL is a name (nadi generate llm --model list) or a file;
MACHINE is t4 or a file of yours, which docs/offload.md describes. Needs the extra
solver: pip install 'nadi\\[solver]'.

[bold]Examples[/]

  nadi memory offload opt-30b t4
  nadi memory offload opt-30b t4 --prompt 1024 --generate 64 --cpu 400GiB
  nadi memory offload opt-30b t4 --gpu-batch-size 48 --num-gpu-batches 3 --percent 20,80,0,100,0,100
"""

_Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="The model: a name, or a file.", show_default=False)
]
_Machine = Annotated[
    str, typer.Argument(metavar="MACHINE", help="The machine: t4, or a file.", show_default=False)
]
_Prompt = Annotated[int, typer.Option("--prompt", metavar="N", help="Tokens of each prompt.")]
_Generate = Annotated[
    int, typer.Option("--generate", metavar="N", help="Tokens to generate for each.")
]
_BatchSize = Annotated[
    int, typer.Option("--gpu-batch-size", metavar="N", min=0, show_default=False,
                      help="Sequences that the GPU computes at once; by default the best."),
]  # fmt: skip
_NumBatches = Annotated[
    int, typer.Option("--num-gpu-batches", metavar="N", min=0, show_default=False,
                      help="Batches for each load of the weights; by default the best."),
]  # fmt: skip
_Percent = Annotated[
    str, typer.Option("--percent", metavar="LIST", show_default=False,
                      help="Fixed percentages of weights on GPU and CPU, of keys and values, and "
                      "of activations, such as 20,80,0,100,0,100; an empty one is free."),
]  # fmt: skip
_Gpu = Annotated[
    str, typer.Option("--gpu", metavar="SIZE", show_default=False,
                      help="Another GPU memory than the machine's, such as 24GiB."),
]  # fmt: skip
_Cpu = Annotated[
    str, typer.Option("--cpu", metavar="SIZE", show_default=False, help="Another CPU memory.")
]
_Disk = Annotated[
    str, typer.Option("--disk", metavar="SIZE", show_default=False, help="Another disk.")
]
_Compat = Annotated[
    str, typer.Option("--compat", metavar="NAME", show_default=False,
                      help="flexgen: search as FlexGen does, until the rate falls."),
]  # fmt: skip


def command(
    model: _Model, machine: _Machine, prompt: _Prompt = 512, generate: _Generate = 32,
    gpu_batch_size: _BatchSize = 0, num_gpu_batches: _NumBatches = 0,
    percent: _Percent = "", gpu: _Gpu = "",
    cpu: _Cpu = "", disk: _Disk = "", compat: _Compat = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Find the fastest policy, and print it."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False) as progress:
        progress("starting")
        from nadi.memory.offloading.offloaded_inference import OffloadQuestion, offload_inference

        sizes = _sizes(gpu_memory=gpu, cpu_memory=cpu, disk=disk)
        question = OffloadQuestion(
            prompt,
            generate,
            gpu_batch_size or None,
            num_gpu_batches or None,
            _shares(percent),
            sizes,
        )
        progress("searching")
        found = offload_inference(model, machine, question, compat=compat)
    from nadi.memory.offloading.result import OFFLOAD

    OFFLOAD.tell(OFFLOAD.data(found), as_json=as_json)


def _sizes(**texts: str) -> dict[str, int]:
    from nadi.units import parse_bytes

    found = {}
    for name, text in texts.items():
        if text:
            try:
                found[name] = parse_bytes(text)
            except ValueError as error:
                option = name.removesuffix("_memory")
                raise UsageError(Parameter(option, text), str(error), "such as 24GiB") from None
    return found


def _shares(text: str) -> tuple[float | None, ...]:
    """Read percentages; empty ones are free."""
    parts = [part.strip() for part in text.split(",")] if text else [""] * 6
    try:
        shares = tuple(float(part) / 100 if part else None for part in parts)
    except ValueError:
        shares = ()
    if len(shares) != 6 or any(one is not None and not 0 <= one <= 1 for one in shares):
        raise UsageError(
            Parameter("percent", text), "not six percentages, each 0 to 100 or empty",
            "such as 20,80,0,100,0,100",
        )  # fmt: skip
    return shares
