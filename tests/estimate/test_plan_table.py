"""Each command that takes plans takes every form of them, and those that price one agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.cli import main
from nadi.estimates import describe_step, estimate, read_machine, read_model, search, search_space
from nadi.memory.tiers.study import TierQuestion, study_second_tiers
from nadi.models import LanguageModel

SYSTEM = "dgx-h100"
SHAPE: dict[str, Any] = {
    "layers": 14, "hidden": 512, "heads": 8, "vocab": 1024, "sequence": 4096, "ffn": 1024,
    "gated": True, "norm": "rmsnorm", "position": "rope",
}  # fmt: skip
MODEL = LanguageModel(**SHAPE)
PLAN: dict[str, Any] = {"tp": 2, "dp": 2, "pp": 2, "global_batch": 16}
FORMS: dict[str, dict[str, Any]] = {
    "ZeRO 0": {"zero": 0}, "ZeRO 1": {"zero": 1}, "ZeRO 2": {"zero": 2}, "ZeRO 3": {"zero": 3},
    "context parallel": {"cp": 2},
    "interleaved": {"schedule": "interleaved", "chunks": 2},
    "uneven stages": {"pp": 4, "dp": 1},
    "ends as layers": {"pp": 4, "dp": 1, "ends_as_layers": True},
    "ends as layers, a layer a chunk": {
        "pp": 4, "dp": 1, "schedule": "interleaved", "chunks": 4, "ends_as_layers": True,
    },
    "full recomputation": {"recompute": "full"},
    "selective recomputation": {"recompute": "selective"},
    "no sequence parallelism": {"sequence_parallel": False},
    "adapters": {"lora": 16}, "adapters, ZeRO 3": {"lora": 16, "zero": 3},
    "decode": {"inference": "decode", "pp": 1, "micro_batch": 8, "sequence_parallel": False},
    "prefill": {"inference": "prefill", "sequence_parallel": False},
}  # fmt: skip
# fields of the plan as searches have them, beside those of the same name
_SEARCHED = (
    "tp",
    "pp",
    "dp",
    "cp",
    "zero",
    "micro_batch",
    "chunks",
    "ends_as_layers",
    "recompute",
    "lora",
)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.json"
    path.write_text(json.dumps(SHAPE))
    return path


def searched(plan: dict[str, Any]) -> dict[str, list[Any]]:
    """Give the fields of a search whose space is one plan."""
    found: dict[str, Any] = {"cp": 1, "micro_batch": 1, "chunks": 1, "recompute": "none", "zero": 1}
    found |= {name: value for name, value in plan.items() if name in _SEARCHED}
    phase, splits = plan.get("inference", ""), plan.get("sequence_parallel", True)
    found |= {
        "training": not phase, "decoding": phase == "decode", "dtype": "bfloat16",
        "tensor_par_comm_type": "rs_ag" if splits else "ar", "seq_par_ag_redo": splits,
        "tensor_par_overlap": "none", "data_par_overlap": not phase and plan["dp"] > 1,
        "weight_offload": False, "activations_offload": False, "optimizer_offload": False,
    }  # fmt: skip
    if phase or plan["dp"] * found["cp"] == 1:
        found["zero"] = 0
    return {name: [value] for name, value in found.items()}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_plan(form: str, model_file: Path) -> None:
    plan = PLAN | FORMS[form]
    step = describe_step(MODEL, SYSTEM, plan)
    estimated = estimate(step.model, step.machine, step.execution).seconds
    job = nadi.llm_job(MODEL, **plan)
    ranks = len(job.traces)
    simulated = nadi.simulate(job, nadi.load_system(SYSTEM, ranks)).makespan / 1e9
    if not plan.get("inference"):  # steps of inference follow each other (``steady_step``)
        assert estimated == pytest.approx(simulated, rel=0.03)
    described = read_model(str(model_file)), read_machine(SYSTEM, ranks)
    space = search_space(*described, ranks, plan["global_batch"], searched(plan))
    (best,) = search(space, top=1).best
    assert best.seconds == pytest.approx(estimated, rel=1e-9)
    asked = TierQuestion((64.0,), (1024.0,), None, ranks, plan["global_batch"],
                         given=searched(plan))  # fmt: skip
    studied = study_second_tiers([str(model_file)], [SYSTEM], asked)[0].study
    assert studied.without is not None
    assert studied.without.seconds == pytest.approx(estimated, rel=1e-9)


@pytest.mark.parametrize("form", [*FORMS, "8-bit floats"])
def test_utilizations_of_both_commands_differ_as_their_times_do(
    form: str, model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = PLAN | FORMS.get(form, {"dtype": "float8_e4m3fn"})
    names = {"sequence_parallel": "sp", "ends_as_layers": "ends-as-layers"}
    given = []
    for name, value in plan.items():
        option = names.get(name, name.replace("_", "-"))
        given += [f"--{option}", str(value)]
        if isinstance(value, bool):
            given[-2:] = [f"--{option}"] if value else [f"--no-{option}"]
    found, model = [], str(model_file)
    for command in (
        ["estimate", model, SYSTEM], ["generate", "llm", "--model", model, "--system", SYSTEM],
    ):  # fmt: skip
        main([*command, *given, "--json"])
        data = json.loads(capsys.readouterr().out)
        found.append(data["mfu"] * data.get("seconds", data.get("step_ns", 0) / 1e9))
        main([*command, *given])
        shown = f"model FLOPs utilization {100 * data['mfu']:.1f} %"
        assert shown in " ".join(capsys.readouterr().out.split())
    assert found[0] == pytest.approx(found[1], rel=1e-9)


SCALED: dict[str, dict[str, Any]] = {
    "ZeRO 0": {"dp": 4}, "ZeRO 1": {"dp": 4}, "ZeRO 2": {"dp": 4}, "ZeRO 3": {"dp": 4},
    "context parallel": {"cp": 4}, "interleaved": {"dp": 4}, "uneven stages": {"tp": 4},
    "ends as layers": {"tp": 4}, "ends as layers, a layer a chunk": {"tp": 4},
    "adapters": {"dp": 4}, "adapters, ZeRO 3": {"dp": 4},
    "full recomputation": {"cp": 4}, "selective recomputation": {"tp": 4},
    "no sequence parallelism": {"tp": 4}, "decode": {"tp": 4}, "prefill": {"tp": 4},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_scaled(form: str) -> None:
    plan = PLAN | FORMS[form]
    if "cp" in SCALED[form]:
        plan |= {"cp": 2}
    wanted = SCALED[form]
    large = plan | wanted
    large["global_batch"] = plan["global_batch"] * large["dp"] // plan["dp"]
    scaled, truth = nadi.scale(nadi.llm_job(MODEL, **plan), **wanted), nadi.llm_job(MODEL, **large)
    system = nadi.load_system(SYSTEM, len(truth.traces))
    made, meant = (nadi.simulate(one, system).makespan for one in (scaled.job, truth))
    assert made == pytest.approx(meant, rel=0.01)


def test_offloading_beside_the_file_of_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("".join(f"{name} = {value}\n" for name, value in PLAN.items()))
    by_file, by_fields = (
        describe_step(MODEL, "dgx-h100-cxl", plan, offload=["optimizer=cxl"])
        for plan in (path, PLAN)
    )
    assert by_file.execution == by_fields.execution
    assert by_file.execution.optimizer_offload


def test_adapters_alone_are_trained() -> None:
    """Weights are there, their gradients and states are not, and no product makes them."""
    plan, rank = PLAN | {"tp": 1, "pp": 1, "zero": 0}, 16
    whole, few = (nadi.models.llm_statistics(MODEL, **plan, lora=one) for one in (0, rank))
    width = MODEL.hidden
    of_layer = rank * (width + 3 * width) + rank * (width + width)
    memory = few.memory.row(0, named=True)
    assert memory["gradients"] == 4 * MODEL.layers * of_layer
    assert memory["optimizer"] == 12 * MODEL.layers * of_layer
    assert memory["weights"] == 2 * (MODEL.total_parameters + MODEL.layers * of_layer)
    assert memory["activations"] < whole.memory.row(0, named=True)["activations"]
    names = nadi.llm_job(MODEL, **plan, lora=rank).traces[0].nodes["name"].cast(pl.String).to_list()
    made = {name for name in names if name.endswith("weight_gradient")}
    assert made
    assert all(".adapter_" in name for name in made)
