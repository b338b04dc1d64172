"""Recordings without steps that stop after some time: the slower program does less work in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nadi.cli import main
from nadi.trace.categories import kernel_class


def recorded(path: Path, kernels: int, each_us: int) -> Path:
    """Write a trace of launched kernels, with as much time between them as each takes."""
    events = []
    for k in range(kernels):
        name, start = f"kernel_{k % 7}", 2 * k * each_us
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
             "ts": start, "dur": 5, "args": {"correlation": k + 1}},
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start + 8,
             "dur": each_us, "args": {"device": 0, "stream": 7, "correlation": k + 1}},
        ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_less_work_in_the_same_time_is_no_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(tmp_path / "before.json", 100, 900)
    after = recorded(tmp_path / "after.json", 90, 1_000)
    assert main(["diff", str(before), str(after)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "does 10.0 % less device work (90 operations against 100)" in said
    assert "for the same work it would be 11.0 % longer" in said


def test_longer_recordings_of_more_work_need_no_such_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(tmp_path / "before.json", 100, 900)
    after = recorded(tmp_path / "after.json", 120, 900)
    assert main(["diff", str(before), str(after)]) == 0
    assert "device work (" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)", "embedding"),
        ("void split_embedding_codegen_forward_unweighted_kernel<c10::Half>(int)", "embedding"),
        ("void fbgemm_gpu::(anonymous namespace)::_compute_FP8_quantize_cuda_kernel<float>()",
         "elementwise"),
        ("ampere_fp16_s16816gemm_fp16_128x128", "matrix multiplication"),
        ("fc-dtype_Float", "matrix multiplication"),
        ("split_eb_bwd_rowwise_adagrad-dtype_Half", "embedding"),
        ("cudnn_ampere_scudnn_128x64_relu_medium_nn_v1", "convolution"),
        ("void cub::DeviceRadixSortOnesweepKernel<Policy, false, long>(int*)", "sort"),
        ("void at::native::reduce_kernel<512, 1>(float)", "reduction"),
    ],
)  # fmt: skip
def test_kernels_are_of_the_class_of_their_work(name: str, expected: str) -> None:
    assert kernel_class(name) == expected
