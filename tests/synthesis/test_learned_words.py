"""A learned model holds no word of the owner's: modules, annotations, paths, hosts and users."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import polars as pl
import pytest

import nadi
from nadi.sharing.obfuscation.private_job import learned_label
from nadi.sharing.synthesis.job_columns import columns_of_job
from nadi.sharing.synthesis.learning import learn_model
from nadi.sharing.synthesis.model_bytes import encode_model
from nadi.sharing.synthesis.synthetic_jobs import synthetic_job
from nadi.trace.attributes import AttributeBuilder
from nadi.trace.schema import NODES

SECRET = "confidential_flagship"
NAMES = [
    f"/home/{SECRET}/train.py(12): forward", f"## {SECRET} ##", f"{SECRET}.layers.3",
    f"{SECRET}::fused_attention", f"{SECRET}Backward", f"void {SECRET}_kernel<float>(float*)",
    f"Optimizer.step#{SECRET}.step", f"nn.Module: {SECRET}_0", f"alice@{SECRET}",
]  # fmt: skip


def _planted() -> nadi.Job:
    with nadi.JobBuilder(2) as made:
        for rank in made.ranks:
            for name in NAMES:
                done = rank.compute(name, duration="1 ms")
                rank.collective("all_reduce", "4 MiB", after=done)
    texts = [name for name, dtype in NODES.dtypes.items() if dtype == pl.String and name != "name"]
    builder = AttributeBuilder()
    builder.add(0, SECRET, "string", SECRET)
    builder.add(0, "dtype", "string", SECRET)
    traces = [
        replace(
            trace, given_attributes=builder.build(),
            nodes=trace.nodes.with_columns(pl.lit(SECRET).alias(name) for name in texts),
            groups=trace.groups.with_columns(description=pl.lit(SECRET)),
        )
        for trace in made.job.traces
    ]  # fmt: skip
    return replace(made.job, traces=tuple(traces))


def test_no_planted_word_is_in_a_model_or_in_what_is_made_of_it() -> None:
    model = learn_model([_planted()])
    content = encode_model(model)
    assert SECRET.encode() not in zlib.decompress(content[content.index(b"\x78") :])
    labels = columns_of_job(_planted()).labels
    assert not [label for label in labels if SECRET in label or "/" in label]
    made = synthetic_job(model)
    assert not [name for trace in made.traces for name in trace.nodes["name"] if SECRET in name]


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_names_of_generated_jobs_stay(model: str) -> None:
    job = nadi.llm_job(model, dp=2)
    known = {re.sub(r"\d+", "#", name) for trace in job.traces for name in trace.nodes["name"]}
    assert set(columns_of_job(job).labels) == known


@pytest.mark.parametrize("network", ["resnet50", "vit-b-16", "dlrm-kaggle", "dit-xl-2"])
def test_names_of_generated_networks_stay(network: str) -> None:
    job = nadi.models.network_job(network, ranks=2)
    known = {re.sub(r"\d+", "#", name) for trace in job.traces for name in trace.nodes["name"]}
    assert set(columns_of_job(job).labels) == known


@pytest.mark.parametrize("name", [
    "aten::mm", "c10d::allreduce_", "gloo:all_reduce", "AddmmBackward0", "cudaLaunchKernel",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)",
    "ampere_sgemm_128x64_nn", "Optimizer.step#AdamW.step", "Memcpy HtoD (Pageable -> Device)",
])  # fmt: skip
def test_names_that_everybody_has_stay(name: str) -> None:
    assert learned_label(name, "operator", "none", "") == re.sub(r"\d+", "#", name)
