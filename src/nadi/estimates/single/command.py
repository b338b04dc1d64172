"""``nadi estimate``: what a model would take on a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nadi.errors import UsageError
from nadi.estimates.single.sweep_output import check_output, show_sweep
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
)
from nadi.results.terminal.options import AsJson, Calibrate, Overwrite, SweepFile, SweepOver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nadi.estimates.calculon.rules import EstimateRules
    from nadi.estimates.calibration import Calibration
    from nadi.estimates.single.checks import SimulatePlaced
    from nadi.estimates.single.estimate import DescribedStep

HELP = """Estimate a step of training or inference, without a trace.

Prints the time of a step and where it goes, the bytes in both memory tiers, and what
limits it. A model and a system are names of those that ship with Nadi (nadi generate
llm --model list, nadi systems), files of your own, or Calculon's JSON files. The plan
is stated by the options of nadi generate llm, by a file of the same fields, or by
Calculon's execution file.

[bold]Examples[/]

  nadi estimate llama3-70b dgx-h100 --tp 8 --pp 4 --dp 16 --global-batch 512
  nadi estimate llama3-8b dgx-h100 --tp 8 --global-batch 8 --check
  nadi estimate llama3-8b dgx-h100 --dp 64 --zero 3 --cp 2 --global-batch 128
  nadi estimate llama3-70b dgx-h100 --tp 8 --inference decode --seq 8192
  nadi estimate llama3-8b dgx-h100 --dp 8 --zero 3 --calibrate recording/
  nadi estimate dlrm-dcnv2 dgx-h100 --dp 8 --global-batch 65536
  nadi estimate model.json machine.json execution.json --compat calculon
  nadi estimate llama3-70b dgx-h100 --tp 8 --dp 4 --offload optimizer \\
      --sweep memory.tier2.bandwidth=32,64,128,256GB/s \\
      --sweep memory.tier2.capacity=0.5,1TiB -o sweep.html
"""

# what simulates plans that offload, for --check; the list of commands sets it, as this room does
# not know the one that does
offloaded_simulation: SimulatePlaced | None = None

ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", help="The model: a name, or a file.", show_default=False)
]
MachineName = Annotated[
    str, typer.Argument(metavar="SYSTEM", help="The system: a name, or a file.",
                        show_default=False),
]  # fmt: skip
Compat = Annotated[
    str, typer.Option("--compat", metavar="NAME", show_default=False,
                      help="Use the rules of another program, including its quirks: calculon."),
]  # fmt: skip
_Execution = Annotated[
    str, typer.Argument(metavar="[EXECUTION]", help="A file that says how it is run, instead of "
                        "options.", show_default=False),
]  # fmt: skip
_Offload = Annotated[
    str, typer.Option("--offload", metavar="TENSORS", show_default=False,
                      help="What lives in the second memory tier: weights, activations, "
                      "optimizer, with commas between them; optimizer=cxl names a tier."),
]  # fmt: skip
_Check = Annotated[
    bool, typer.Option("--check", help="Simulate the generated job, too, and compare both with a "
                       "published step time where one is known."),
]  # fmt: skip

_Zero = Annotated[
    int | None, typer.Option("--zero", metavar="0..3", show_default="1, of a network 0",
                             help="Sharded by data parallel ranks: 1 optimizer, 2 also gradients, "
                             "3 also weights."),
]  # fmt: skip

_USUAL = {
    "tp": 1, "pp": 1, "dp": 1, "cp": 1, "ep": 1, "expert_tp": 0, "zero": None,
    "sequence_parallel": None, "micro_batch": 0, "global_batch": 0, "sequence": 0,
    "schedule": "1f1b", "chunks": 1, "ends_as_layers": False, "recompute": "none",
    "attention": "flash", "dtype": "bfloat16", "inference": "", "lora": 0, "overlap": "none",
}  # fmt: skip


def command(
    model: ModelName, system: MachineName, execution: _Execution = "",
    tp: Tp = 1, pp: Pp = 1, dp: Dp = 1, cp: Cp = 1, ep: Ep = 1, expert_tp: ExpertTp = 0,
    zero: _Zero = None, sp: Sp = None, micro_batch: MicroBatch = 0,
    global_batch: GlobalBatch = 0, seq: Seq = 0, schedule: Schedule = "1f1b", chunks: Chunks = 1,
    ends_as_layers: EndsAsLayers = False, recompute: Recompute = "none",
    attention: Attention = "flash", dtype: Dtype = "bfloat16", inference: Inference = "",
    lora: Lora = 0, overlap: Overlap = "none", offload: _Offload = "", compat: Compat = "",
    sweep: SweepOver = None, output: SweepFile = None, overwrite: Overwrite = False,
    check: _Check = False, calibrate: Calibrate = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Estimate a step, and print what limits it."""
    fields: dict[str, Any] = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "expert_tp": expert_tp,
        "zero": zero, "sequence_parallel": sp, "micro_batch": micro_batch,
        "global_batch": global_batch, "sequence": seq, "schedule": schedule,
        "chunks": chunks, "ends_as_layers": ends_as_layers, "recompute": recompute,
        "attention": attention, "dtype": dtype, "inference": inference, "lora": lora,
        "overlap": overlap,
    }  # fmt: skip
    _check_alone(execution, fields)
    check_output(output, bool(sweep), overwrite=overwrite)
    from nadi.estimates.calculon.rules import DEFAULT, rules_named
    from nadi.estimates.single.estimate import describe_step, describe_sweep
    from nadi.models.networks.network_plan import is_network

    rules = rules_named(compat)
    tensors = [one.strip() for one in offload.split(",") if one.strip()]
    if check and rules != DEFAULT:
        raise UsageError("--check", "generated jobs have Nadi's rules", "leave out --compat")
    if sweep and check:
        raise UsageError("--check", "a sweep is of many steps", "leave out one of the two")
    if is_network(model):
        others = {"--offload": offload, "--compat": compat, "--sweep": sweep, "--check": check,
                  "--calibrate": calibrate, "EXECUTION": execution}  # fmt: skip
        _estimate_network(model, system, fields, others, as_json=as_json)
        return
    fields["zero"] = 1 if zero is None else zero
    asked = model, system, execution or fields
    measured = calibration_of(calibrate, rules)
    if sweep:
        from nadi.estimates.sweep_axes import parse_axes
        from nadi.estimates.sweeps import sweep_estimates

        described = describe_sweep(*asked, offload=tensors, calibration=measured)
        axes = parse_axes(sweep, described, rules)
        frame = sweep_estimates(described, axes, rules).frame()
        title = f"{Path(model).stem} on {Path(system).stem}"
        show_sweep(frame, axes, title, output, as_json=as_json)
        return
    step = describe_step(*asked, offload=tensors, calibration=measured)
    _estimate(step, rules, (model, system) if check else None, as_json=as_json)


def calibration_of(paths: Sequence[Path] | None, rules: EstimateRules) -> Calibration | None:
    """Read what was measured; Nadi's own rules alone have kernels that it can price."""
    if not paths:
        return None
    from nadi.estimates.calibration import read_calibration

    if rules.blocks_of_calculon:
        raise UsageError("--calibrate", "Calculon's rules price no kernels", "leave out --compat")
    return read_calibration(paths)


def _estimate(
    step: DescribedStep, rules: EstimateRules, checked_names: tuple[str, str] | None, *,
    as_json: bool,
) -> None:  # fmt: skip
    """Estimate and print; with the names of model and system, also what a check finds."""
    from nadi.estimates.single.result import ESTIMATE
    from nadi.estimates.single_estimate import estimate

    found = estimate(step.model, step.machine, step.execution, rules)
    data = ESTIMATE.data(found)
    if checked_names is not None:
        from nadi.estimates.single.checks import check_estimate, describe_check

        model, system = checked_names
        checked = check_estimate(step, system, found, model, offloaded_simulation)
        data["check"] = describe_check(checked)
    ESTIMATE.tell(data, as_json=as_json)
    if found.lacks:
        raise typer.Exit(1)


def _estimate_network(
    model: str, system: str, fields: dict[str, Any], others: dict[str, Any], *, as_json: bool
) -> None:
    """Estimate a network on data parallel ranks; it has no other degrees, and no sequences."""
    from nadi.estimates.network_steps import network_estimate
    from nadi.estimates.single.result import NETWORK_ESTIMATE

    known = ("dp", "global_batch", "zero", "dtype", "inference")
    changed = [
        *(f"--{name.replace('_', '-')}" for name, value in fields.items()
          if name not in known and value != _USUAL[name]),
        *(name for name, is_given in others.items() if is_given),
    ]  # fmt: skip
    if fields["inference"] not in ("", "prefill"):
        changed.append("--inference decode")
    ranks, samples = fields["dp"], fields["global_batch"] or fields["dp"]
    if changed:
        raise UsageError(
            " ".join(changed), f"{model} is a network of layers on data parallel ranks",
            "use --dp, --global-batch, --zero, --dtype and --inference prefill",
        )  # fmt: skip
    if samples % ranks:
        raise UsageError(
            "--global-batch", f"{samples} samples over {ranks} ranks", "give a multiple of --dp"
        )
    found = network_estimate(
        model, system, ranks=ranks, batch=samples // ranks, dtype=fields["dtype"],
        zero=fields["zero"] or 0, inference=bool(fields["inference"]),
    )  # fmt: skip
    NETWORK_ESTIMATE.tell(NETWORK_ESTIMATE.data(found), as_json=as_json)
    if found.lacks:
        raise typer.Exit(1)


def _check_alone(execution: str, fields: dict[str, Any]) -> None:
    """Raise UsageError if a file says how the model is run, and an option does, too."""
    if execution and any(value != _USUAL[name] for name, value in fields.items()):
        raise UsageError(
            execution, "a file says how the model is run, and options do, too",
            "leave out one of the two",
        )  # fmt: skip
