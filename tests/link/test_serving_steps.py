"""Steps of serving engines by their annotations: what engines write, and a made recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.bottlenecks.steps.run_report import summarize
from nadi.cli import main
from nadi.recordings.serving_steps import ServingStep, replay_mark, serving_step
from nadi.whatif.selection import Selection, select
from tests.link.test_graph_replays import LAYER, MODEL, capture, event, names, replay, write


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("execute_new_3_cached_0", ServingStep("prefill", -1, 3, -1)),
        ("execute_new_1_cached_31", ServingStep("step", -1, 32, -1)),
        ("execute_context_2(300)_generation_0(0)", ServingStep("prefill", 300, 2, 300)),
        ("execute_context_0(0)_generation_8(8)", ServingStep("decode", 8, 8, 0)),
        ("execute_context_1(100)_generation_8(8)", ServingStep("mixed", 108, 9, 100)),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
         ServingStep("decode", 32, 32, 0)),
        ("execute_8192_context_24(sq8170sk8170sqsq9sqsk9)_generation_22(sq22sk9sqsq22sqsk9)",
         ServingStep("mixed", 8192, 46, 8170)),
        ("step[EXTEND bs=2 toks=512]", ServingStep("prefill", 512, 2, 512)),
        ("step[EXTEND bs=2 toks=512 c_sqsq=7 c_sk=7]", ServingStep("prefill", 512, 2, 512)),
        ("step[DECODE bs=32]", ServingStep("decode", 32, 32, 0)),
        ("step[TARGET_VERIFY bs=4 g_sq=20 g_sk=9]", ServingStep("decode", 20, 4, 0)),
        ("step[MIXED bs=5 c=1 g=4 c_sq=100 g_sq=4]", ServingStep("mixed", 104, 5, 100)),
        ("step[IDLE bs=0]", ServingStep("idle", -1, 0, -1)),
        ("prefill[bs=1 tok=77 ctx=[77] sqsq=9]", ServingStep("prefill", 77, 1, 77)),
        ("decode[bs=117/128 tok=117 d=117 p=0 spec=0]", ServingStep("decode", 117, 117, 0)),
        ("[Executor] _forward_step 7: 1 ctx reqs, 50 ctx tokens, 3 gen reqs",
         ServingStep("mixed", 53, 4, 50)),
        ("[Executor] _forward_step: 0 ctx reqs, 3 gen reqs", ServingStep("decode", 3, 3, 0)),
        ("[Executor] _forward_step: 2 ctx reqs, 0 gen reqs", ServingStep("prefill", -1, 2, -1)),
        (replay_mark(32, 0), ServingStep("decode", 32, 32, 0, is_padded=True)),
        (replay_mark(-1, 0), ServingStep("decode", -1, -1, 0, is_padded=True)),
        (replay_mark(512, 3), ServingStep("step", 512, -1, -1, is_padded=True, part=3)),
    ],
)  # fmt: skip
def test_annotations_of_engines_say_what_a_step_does(name: str, step: ServingStep) -> None:
    found = serving_step(name)
    assert found is not None
    assert found._replace(lengths=None) == step


SEQUENCES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 90)), max_size=4)  # new, before


@given(SEQUENCES, SEQUENCES.map(lambda many: [(1, before) for _, before in many]))
def test_lengths_are_those_of_the_sequences(
    prompts: list[tuple[int, int]], outputs: list[tuple[int, int]]
) -> None:
    sums = [
        {"sq": sum(q for q, _ in one), "sk": sum(q + k for q, k in one),
         "sqsq": sum(q * q for q, _ in one), "sqsk": sum(q * (q + k) for q, k in one)}
        for one in (prompts, outputs)
    ]  # fmt: skip
    text = ["".join(f"{key}{value}" for key, value in one.items()) for one in sums]
    tokens = sums[0]["sq"] + sums[1]["sq"]
    vllm = serving_step(f"execute_{tokens}_context_{len(prompts)}({text[0]})"
                        f"_generation_{len(outputs)}({text[1]})")  # fmt: skip
    fields = [f"{side}_{key}={value}" for side, one in zip("cg", sums, strict=True)
              for key, value in one.items()]  # fmt: skip
    sglang = serving_step(" ".join(["step[MIXED bs=1", *fields]) + "]")
    assert vllm is not None
    assert sglang is not None
    assert vllm.lengths == sglang.lengths
    whole = sum(q + k for q, k in outputs) + sum(q * (q + k) - q * q / 2 for q, k in prompts)
    keys = sum(q + k for q, k in [*prompts, *outputs])
    assert vllm.lengths == (tokens, keys, int(whole))


def test_lengths_that_are_not_stated_are_not_made_up() -> None:
    names = ["execute_context_1(100)_generation_8(8)", "step[DECODE bs=32]",
             "step[EXTEND bs=2 toks=512]", "step[MIXED bs=2 c_sq=3 g_sq=1]"]  # fmt: skip
    assert [step and step.lengths for step in map(serving_step, names)] == [None] * 4
    extend = serving_step("step[EXTEND bs=1 toks=8 c_sqsq=64 c_sqsk=64 c_sk=8]")
    decode = serving_step("step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]")
    assert extend is not None
    assert decode is not None
    assert (extend.lengths, decode.lengths) == ((8, 8, 32), (2, 30, 30))


@pytest.mark.parametrize(
    "name", ["execute_model", "step[]", "ProfilerStep#3", "decode", "aten::mm"]
)
def test_other_annotations_are_no_steps(name: str) -> None:
    assert serving_step(name) is None


NAMES = [
    "execute_context_2(300)_generation_0(0)",
    "execute_context_1(96)_generation_2(2)",
    *["execute_context_0(0)_generation_3(3)"] * 4,
    "execute_context_0(0)_generation_2(2)",
]
LASTS = [300, 200, 50, 50, 50, 50, 40]  # us, and 10 us to the next, of which 4 are scheduling


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    events, now = [], 100.0
    for number, (name, lasts) in enumerate(zip(NAMES, LASTS, strict=True)):
        events += [
            event("user_annotation", name, now, lasts),
            event("user_annotation", "step[DECODE bs=3]", now + 1, lasts - 2),  # nested: one step
            event("cpu_op", "aten::mm", now + 2, lasts - 4),
            event("cuda_runtime", "cudaLaunchKernel", now + 3, 2, correlation=number + 1),
            event("kernel", "gemm", now + 8, lasts - 12, correlation=number + 1, device=0,
                  stream=7),
            event("cpu_op", "schedule", now + lasts + 3, 4),
        ]  # fmt: skip
        now += lasts + 10
    file = tmp_path / "serving.json"
    file.write_text(json.dumps({"traceEvents": events}))
    return file


def test_steps_are_listed_by_kind(recording: Path) -> None:
    serving = summarize(nadi.run(recording))["serving"]
    kinds = {one["kind"]: one for one in serving["kinds"]}
    assert {kind: (one["steps"], one["tokens"], one["ns"]) for kind, one in kinds.items()} == {
        "prefill": (1, 300, 310_000),
        "mixed": (1, 98, 210_000),
        "decode": (5, 14, 4 * 60_000 + 40_000),  # the last until its work ends
    }
    assert kinds["decode"]["sequences"] == [2, 3]
    assert kinds["decode"]["tokens_per_s"] == pytest.approx(14 / 280e-6)


def test_a_step_with_work_of_before_the_recording_has_no_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of 474 ms, of which 10 ms are recorded, was said to make 68 tokens/s."""
    name = "execute_context_0(0)_generation_4(4)"
    late = [
        event("user_annotation", name, 100, 3_000), event("cpu_op", "aten::mm", 101, 50),
        event("cuda_runtime", "cudaLaunchKernel", 103, 2, correlation=1),
        event("kernel", "gemm", 2_100, 900, correlation=1, device=0, stream=7),
    ]  # fmt: skip
    file = tmp_path / "late.json"
    file.write_text(json.dumps({"traceEvents": late}))
    run = nadi.run(file)
    assert run.window.after_earlier_work
    (kind,) = summarize(run)["serving"]["kinds"]
    assert (kind["tokens_per_s"], kind["unrecorded_steps"], kind["tokens"]) == (-1.0, 1, 4)
    assert main(["run", str(file)]) == 0
    assert "tokens/s are without 1 step of which" in capsys.readouterr().out


def test_a_steady_state_and_the_time_between_steps_are_found(recording: Path) -> None:
    serving = summarize(nadi.run(recording))["serving"]
    assert serving["steady"] == {
        "kind": "decode", "sequences": 3, "first": 2, "last": 5, "median_ns": 60_000,
    }  # fmt: skip
    assert serving["between"] == {
        "ns": 60_000, "median_ns": 10_000, "parts": {"scheduling": 24_000},
        "by": [{"name": "schedule", "ns": 24_000}],
    }  # fmt: skip


def test_without_annotations_steps_are_told_by_the_sizes_of_graphs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = [*MODEL, *LAYER]  # kernels tell the sizes apart
    for size, model in ((4, MODEL), (16, other)):
        label = f"capture_{size}_FULL"
        write(tmp_path / f"capture_{size}.json", capture([model], size=size, label=label))
    file = write(tmp_path / "step.json", replay([names(other), *[names(MODEL)] * 3]))
    run = nadi.run(file)
    assert [(step.serving.kind, step.serving.tokens) for step in run.steps if step.serving] == [
        ("decode", 16), ("decode", 4), ("decode", 4), ("decode", 4),
    ]  # fmt: skip
    serving = summarize(run)["serving"]
    (kind,) = serving["kinds"]
    assert (kind["tokens"], kind["sequences"], kind["is_padded"]) == (28, [4, 16], True)
    assert [step["ns"] for step in serving["steps"][:3]] == [100_000] * 3  # from launch to launch
    assert (serving["steady"]["sequences"], serving["steady"]["first"]) == (4, 1)
    assert main(["run", str(file)]) == 0
    assert "the engine annotates no steps" in capsys.readouterr().out


def test_pieces_of_a_model_are_one_step(tmp_path: Path) -> None:
    layers = [[work._replace(module=f"Layer_{number}") for work in LAYER] for number in range(3)]
    write(tmp_path / "capture.json", capture(layers, size=8))
    file = write(tmp_path / "step.json", replay([names(LAYER)] * 6))
    steps = nadi.run(file).steps
    assert [step.serving for step in steps] == [ServingStep("step", 8, -1, -1, is_padded=True)] * 2
    graph = nadi.run(file, step=1).graph
    assert [step.start(graph.time) for step in steps] == [9_001, 309_001]


def test_a_size_that_nothing_tells_is_no_size_of_a_step(tmp_path: Path) -> None:
    for size in (4, 16):
        write(tmp_path / f"capture_{size}.json", capture([MODEL], size=size))
    file = write(tmp_path / "step.json", replay([names(MODEL)] * 3))
    serving = summarize(nadi.run(file))["serving"]
    assert [(one["kind"], one["tokens"]) for one in serving["kinds"]] == [("decode", -1)]


def test_a_step_is_chosen_by_its_number(recording: Path) -> None:
    run = nadi.run(recording, step=1)
    assert run.window.serving == ServingStep("mixed", 98, 3, 96)
    assert run.measured_ns == 200_000


def test_changes_of_a_kind_of_step_leave_the_others(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["scale aten::mm step=decode 0.5", "scale aten::mm step=0,1 0.5"]
    assert main(["what-if", str(recording), *changes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["changes"]
    kinds = [{one["kind"]: one for one in change["by_kind_of_step"]} for change in found]
    assert [one["steps"] for one in kinds[0].values()] == [1, 1, 5]
    gains = [{kind: one["measured_ns"] - one["step_ns"] for kind, one in each.items()}
             for each in kinds]  # fmt: skip
    assert gains[0]["prefill"] == gains[0]["mixed"] == 0
    # half of 46 us four times, and of 36 us once
    assert gains[0]["decode"] == pytest.approx((4 * 23 + 18) / 5 * 1000, rel=0.2)
    assert (gains[1]["prefill"], gains[1]["mixed"]) == (148_000, 98_000)
    assert main(["what-if", str(recording), "remove gemm step=idle"]) == 2
    assert "prefill, mixed, decode" in capsys.readouterr().err
    assert main(["what-if", str(recording), changes[0]]) == 0
    assert "mean step of each kind" in capsys.readouterr().out


def test_a_step_condition_takes_what_hosts_issue_in_it(recording: Path) -> None:
    graph = nadi.run(recording).graph
    kernels = select(graph, Selection("gemm", steps=("1", "decode"))).nonzero()[0]
    times = graph.time[2 * kernels] // 1000
    starts = [sum(LASTS[:number]) + 10 * number for number in range(7)]
    assert times.tolist() == [starts[number] + 8 for number in range(1, 7)]
