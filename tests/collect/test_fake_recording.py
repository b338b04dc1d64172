"""Programs on fake tensors: with torch, what they do equals closed forms; without, clear errors."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.errors import InputError, UsageError
from nadi.pytorch import FakeOptions, fake_recording, record_fake_job

from . import fake_programs
from .fake_programs import HEADS, HIDDEN, LENGTH, WIDTH, WORDS

HAS_TORCH = importlib.util.find_spec("torch") is not None
with_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
TOKENS, LAYERS, FLOAT = 2 * LENGTH, 2, 4


@cache
def recorded(program: str, world_size: int = 8, rank: int = 0) -> nadi.pytorch.FakeRecording:
    with fake_recording(world_size, rank) as recording:
        getattr(fake_programs, program)()
    assert nadi.trace.validate_trace(recording.trace).is_empty()
    return recording


def communication(trace: nadi.Trace) -> Counter[tuple[str, int, int]]:
    """Count type, size of the group (0 for all ranks) and bytes."""
    sizes = [len(ranks) for ranks in trace.groups["ranks"]]
    rows = trace.nodes.filter(pl.col("comm_type") != "none")
    return Counter(
        (kind, sizes[group] if group >= 0 else 0, size)
        for kind, group, size in rows.select("comm_type", "group", "comm_bytes").iter_rows()
    )


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_the_error_says_so() -> None:
    with pytest.raises(UsageError, match="torch is missing"), fake_recording(8):
        pass


@pytest.mark.parametrize(
    ("arguments", "told"),
    [((0,), "world_size=0"), ((8, 8), "rank=8"), ((8, -1), "no such rank")],
)
def test_numbers_are_checked_first(arguments: tuple[int, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told), fake_recording(*arguments):
        pass


def test_a_command_is_checked_first(tmp_path: Path) -> None:
    wrong = [
        ([], "no program"), (["python", "-u"], "no program"), (["none.py"], "no such file"),
        (["torchrun", "a.py"], "one process"),
    ]  # fmt: skip
    for command, told in wrong:
        with pytest.raises((UsageError, InputError), match=told):
            record_fake_job(command, tmp_path, FakeOptions(8))
    script = tmp_path / "a.py"
    script.write_text("")
    with pytest.raises(UsageError, match="rank=9"):
        record_fake_job([str(script)], tmp_path, FakeOptions(8, [9]))
    (tmp_path / "ranks.json").write_text("{}")
    with pytest.raises(InputError, match="exists"):
        record_fake_job([str(script)], tmp_path, FakeOptions(8))
    if not HAS_TORCH:
        with pytest.raises(UsageError, match="torch is missing"):
            record_fake_job([str(script)], tmp_path / "new", FakeOptions(8))


@with_torch
def test_tensor_parallel_and_sharded_equal_closed_forms() -> None:
    tensor_size, data_size = 4, 2
    trace = recorded("tensor_and_sharded").trace
    nodes = trace.nodes
    local = 4 * WIDTH**2 // tensor_size + 3 * WIDTH * HIDDEN // tensor_size + 2 * WIDTH
    rest = 2 * WORDS * WIDTH + WIDTH
    whole, whole_rest = local * FLOAT, rest * FLOAT
    assert communication(trace) == {
        # each layer is gathered for forward and backward, the rest once
        ("all_gather", data_size, whole // data_size): 2 * LAYERS,
        ("all_gather", data_size, whole_rest // data_size): 1,
        ("reduce_scatter", data_size, whole): LAYERS,
        ("reduce_scatter", data_size, whole_rest): 1,
        # forward after o and w2; backward before q, k, v, w1 and w3
        ("all_reduce", tensor_size, TOKENS * WIDTH * FLOAT): 7 * LAYERS,
    }
    matrices = nodes.filter(pl.col("name") == "aten::mm")
    in_layer = (4 * WIDTH**2 + 3 * WIDTH * HIDDEN) // tensor_size
    forward = 2 * TOKENS * (LAYERS * in_layer + WIDTH * WORDS)
    assert matrices["flops"].sum() == 3 * forward  # two gradients for each product
    assert matrices.height == 3 * (7 * LAYERS + 1)
    of_attention = nodes.filter(pl.col("name").cast(pl.String).str.contains("scaled_dot"))
    product = 2 * 2 * (HEADS // tensor_size) * LENGTH**2 * (WIDTH // HEADS)
    assert of_attention["flops"].sum() == LAYERS * (2 + 5) * product // 2  # causal
    assert set(nodes["start"]) == set(nodes["duration"]) == {-1}


@with_torch
def test_a_generated_job_does_what_the_program_does() -> None:
    """Layers have the same FLOPs, collectives, bytes and groups, recorded and generated."""
    trace = recorded("tensor_and_sharded").trace
    model = nadi.models.LanguageModel(
        layers=LAYERS, hidden=WIDTH, heads=HEADS, ffn=HIDDEN, vocab=WORDS, gated=True,
        norm="rmsnorm", position="none", max_positions=LENGTH,
    )  # fmt: skip
    job = nadi.llm_job(
        model, tp=4, dp=2, zero=3, micro_batch=2, sequence_parallel=False, dtype="float32",
    )  # fmt: skip
    generated = job.own_trace(0)
    in_layers = generated.nodes["name"].cast(pl.String).str.starts_with("layers.")
    own = replace(generated, nodes=generated.nodes.filter(in_layers))
    found, expected = communication(own), communication(trace)
    sharded = {key: count for key, count in expected.items() if key[1] == 2 and count > 1}
    assert {key: found[key] for key in sharded} == sharded
    reduced = ("all_reduce", 4, TOKENS * WIDTH * FLOAT)
    # one sum before query, key and value, and one before both halves of the MLP, where the program
    # has one for each of its five linear layers
    assert (found[reduced], expected[reduced]) == (4 * LAYERS, 7 * LAYERS)
    names = own.nodes["name"].cast(pl.String)
    core = own.nodes.filter(names.str.contains(r"attention\.core"))["flops"].sum()
    recorded_core = trace.nodes.filter(
        trace.nodes["name"].cast(pl.String).str.contains("scaled_dot")
    )
    assert core == recorded_core["flops"].sum()
    linear = names.str.contains(r"\.(qkv|output|up|down)(\.(input|weight)_gradient)?$")
    of_head = 3 * 2 * TOKENS * WIDTH * WORDS  # which the program does not share
    products = trace.nodes.filter(pl.col("name") == "aten::mm")["flops"].sum()
    assert own.nodes.filter(linear)["flops"].sum() == products - of_head
    groups = dict(zip(generated.groups["description"], generated.groups["ranks"], strict=True))
    assert {len(ranks): ranks.to_list() for ranks in groups.values()} == {
        len(ranks): ranks.to_list() for ranks in trace.groups["ranks"]
    }


@with_torch
def test_memory_before_a_step_is_that_of_parameters_gradients_and_optimizer() -> None:
    summary = recorded("tensor_and_sharded").summary
    local = (4 * WIDTH**2 + 3 * WIDTH * HIDDEN) // 4 + 2 * WIDTH
    shard = (LAYERS * local + 2 * WORDS * WIDTH + WIDTH) // 2
    words, loss = 2 * (LENGTH + 1) * 8, FLOAT
    assert summary.before == 4 * FLOAT * shard + words + loss  # parameter, gradient, two moments
    assert summary.peak > summary.before + TOKENS * WORDS * FLOAT


@with_torch
def test_data_parallel_reduces_all_gradients() -> None:
    trace = recorded("data_parallel").trace
    parameters = LAYERS * (4 * WIDTH**2 + 3 * WIDTH * HIDDEN + 2 * WIDTH)
    parameters += 2 * WORDS * WIDTH + WIDTH
    found = communication(trace)
    assert {(kind, group) for kind, group, _ in found} == {("all_reduce", 0)}
    assert sum(size * count for (*_, size), count in found.items()) == FLOAT * parameters
    assert "aten::_fused_adamw_" in set(trace.nodes["name"])


@with_torch
def test_fully_sharded_in_half_precision() -> None:
    recording = recorded("fully_sharded")
    layer = 2 * (4 * WIDTH**2 + 3 * WIDTH * HIDDEN + 2 * WIDTH)
    found = communication(recording.trace)
    assert found["all_gather", 0, layer // 8] == 2 * LAYERS
    assert found["reduce_scatter", 0, layer] == LAYERS
    assert sum(found[kind, 0, size] for kind, _, size in found if kind == "all_reduce") == 1  # norm
    values = recording.trace.issues.filter(pl.col("code") == "fake.value")
    assert "fake_programs.py" in values["detail"][0]


@with_torch
def test_tensor_parallel_alone() -> None:
    found = communication(recorded("tensor_parallel").trace)
    assert found == {("all_reduce", 0, TOKENS * WIDTH * FLOAT): 7 * LAYERS}


@with_torch
def test_tokens_go_evenly_to_experts() -> None:
    trace = recorded("experts", 4).trace
    assert communication(trace) == {
        ("all_to_all", 0, 8 * 8): 1,  # counts of 8 experts
        ("all_to_all", 0, 128 * 2 * WIDTH * FLOAT): 2,  # two experts for each token
    }
    detail = " ".join(trace.issues["detail"])
    assert "taken to be 64 (" in detail  # of 256 choices, for each of 4 ranks
    assert "aten::bincount" in detail


@with_torch
def test_mixed_precision_with_recomputation() -> None:
    trace = recorded("mixed_precision").trace
    matrices = trace.operands.join(
        trace.nodes.with_row_index("node").filter(pl.col("name") == "aten::mm")
        .select(pl.col("node").cast(pl.Int64)), on="node",
    )  # fmt: skip
    assert set(matrices["type"]) == {"Tensor(c10::BFloat16)"}
    flops = trace.nodes.filter(pl.col("name") == "aten::mm")["flops"].sum()
    forward = 2 * TOKENS * (4 * WIDTH**2 + 3 * WIDTH * HIDDEN) * LAYERS
    # one more forward of each layer, but for its last product, whose result nobody needs
    again = forward - 2 * TOKENS * WIDTH * HIDDEN * LAYERS
    assert flops == 3 * forward + again + 3 * 2 * TOKENS * WIDTH * WORDS
    assert "aten::_foreach_addcdiv_" in set(trace.nodes["name"])  # as on a GPU


@with_torch
def test_inference_is_one_forward() -> None:
    trace = recorded("inference").trace
    matrices = trace.nodes.filter(pl.col("name") == "aten::mm")
    forward = LAYERS * (4 * WIDTH**2 + 3 * WIDTH * HIDDEN) + WIDTH * WORDS
    assert matrices["flops"].sum() == 2 * LENGTH * forward


@with_torch
def test_modules_are_ranges_around_operators() -> None:
    trace = recorded("tensor_parallel").trace
    paths = {
        int(trace.attributes.node[row]): trace.attributes.python_value(row)
        for row in trace.attributes.rows_named("module").tolist()
    }
    parents = trace.column("parent")
    row = int((trace.nodes["name"] == "aten::mm").arg_max() or 0)
    found = []
    while (row := int(parents[row])) >= 0:
        found.append(paths.get(row))
    assert found[:2] == ["blocks.0.q", "blocks.0"]


@with_torch
def test_torch_is_as_before_afterwards() -> None:
    import torch

    available, device = torch.cuda.is_available(), torch.ones(2).device
    recorded("data_parallel")
    assert torch.cuda.is_available() is available
    assert float(torch.ones(2, device=device).sum()) == 2
    assert not torch.distributed.is_initialized()
    assert "TORCHELASTIC_RUN_ID" not in os.environ


def script(folder: Path, text: str) -> list[str]:
    path = folder / "train.py"
    root = Path(__file__).resolve().parents[2]
    path.write_text(f"import sys\nsys.path.insert(0, {str(root)!r})\n{text}\n")
    return [sys.executable, str(path)]


@with_torch
def test_stages_of_a_pipeline_are_found_and_simulated(tmp_path: Path) -> None:
    command = script(tmp_path, "from tests.collect import fake_programs\nfake_programs.pipeline()")
    job = record_fake_job(command, tmp_path / "job", FakeOptions(8))
    kinds = [(one.summary.rank, one.num_alike, one.summary.messages) for one in job.ranks]
    assert kinds == [(0, 2, 4), (2, 4, 8), (6, 2, 4)]
    system = nadi.load_system("dgx-h100", 8)
    done = nadi.simulate(tmp_path / "job", system)
    assert done.cycles.size == 8
    assert done.makespan > 0
    sent = [trace.nodes.filter(pl.col("kind") == "COMM_SEND")["dst"].to_list()
            for trace in done.traces]  # fmt: skip
    assert (sent[0], sent[3]) == ([2, 2], [5, 5, 1, 1])


@with_torch
def test_a_program_that_fails_is_told_in_a_line(tmp_path: Path) -> None:
    command = script(tmp_path, "import torch\nx = torch.ones(3)\nx.reshape(2)")
    with pytest.raises(InputError, match=r"train.py:5 \(rank 0\): RuntimeError: shape"):
        record_fake_job(command, tmp_path / "job", FakeOptions(8))
    command = script(tmp_path, "print('nothing')")
    with pytest.raises(InputError, match="nothing was recorded: no module was called"):
        record_fake_job(command, tmp_path / "job", FakeOptions(8))
    command = script(tmp_path, "import torch\ntorch.unique(torch.ones(3))")
    with pytest.raises(InputError, match="depends on values"):
        record_fake_job(command, tmp_path / "job", FakeOptions(8, [0]))
    assert not list((tmp_path / "job").glob("*"))
