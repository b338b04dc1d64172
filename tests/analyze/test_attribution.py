"""What other people's recordings are said to be bound by; the kinds of causes are known."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.bottlenecks.steps.result import verdict_in_words
from tests.conftest import NOT_HERE, SHARED

WILD = SHARED / "wild"
DECODE = SHARED / "field" / "graph_replay"
_DECODE = "traces__inference__vllm_decode_full__graph_execution"


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (WILD / "amd_mi210_gpu_only", "The device bounds the whole trace: "),
        (WILD / "amd_mi300_sglang_decode", "The device bounds what follows 463.4 ms: "),
        (WILD / "amd_mi300_vllm_prefill", "The device bounds what follows 151.2 ms: "),
        (DECODE / _DECODE, "The device bounds what follows 8.371 ms: "),
        (WILD / "deepseek_train_h800", "The device bounds step 1: "),
        (WILD / "mtia_rank_0", "The device bounds step 1: "),  # each launch waits for its kernel
        (WILD / "old_kineto_resnet50_workers0", "The host bounds steps 5 to 10: "),
        (WILD / "torch_compile_rtx3090", "The host bounds the whole trace: "),
        (SHARED / "traces" / "gpu_hta" / "ns_resolution", "The device bounds steps 101 to 105: "),
    ],
)
def test_where_the_device_is_busy_nine_tenths_are_explained(file: Path, says: str) -> None:
    path = file.with_name(f"{file.name}.json.gz")
    if not path.exists():
        pytest.skip(NOT_HERE)
    run = nadi.run(path)
    verdict = run.verdict
    assert 2 * verdict.device_busy_ns > verdict.length_ns
    assert 10 * run.unexplained.total_ns <= verdict.length_ns
    first = verdict_in_words(run)[0]
    assert first.startswith(says)
    if file.name == "old_kineto_resnet50_workers0":
        assert "most in enumerate(DataLoader)#" in first  # it has no worker process
