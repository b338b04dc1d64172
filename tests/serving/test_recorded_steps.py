"""Steps of recorded engines, and servers whose steps agree with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.errors import InputError, UsageError
from nadi.serving import RecordedStep, read_recorded_steps
from tests.conftest import SHARED
from tests.serving.drawn import recording_of_steps

LLAMA = {"number": 32, "concurrency": 32, "output": 2, "prefix_caching": False}


def test_steps_take_as_long_as_their_device_works(tmp_path: Path) -> None:
    prompts = "execute_1048_context_2(sq1024sk1024sqsq524288sqsk524288)_generation_24(sq24sk24000"
    (tmp_path / "steps.json").write_bytes(recording_of_steps([
        ("step[DECODE bs=8]", [(0, 100), (300, 100)]),
        (f"{prompts}sqsq24sqsk24000)", [(0, 700), (650, 150)]),
        ("step[IDLE]", [(0, 10)]),
    ]))  # fmt: skip
    assert read_recorded_steps(tmp_path / "steps.json") == (
        RecordedStep("decode", 0, 0, 8, -1, 200_000),
        RecordedStep("mixed", 2, 1024, 24, 1000, 800_000),
    )


def test_a_server_has_the_steps_of_its_recording(tmp_path: Path) -> None:
    """Nearly, as the attention of each prompt is longer by what steps of its size are."""
    (tmp_path / "steps.json").write_bytes(recording_of_steps([
        ("step[DECODE bs=32]", [(0, 9000)]), ("step[DECODE bs=32]", [(0, 7000)]),
        ("step[EXTEND bs=4 toks=2048]", [(0, 90_000)]),
    ]))  # fmt: skip
    setup = {**LLAMA, "measured": str(tmp_path / "steps.json"), "input": 512, "budget": 2048}
    found = nadi.serve("llama3-8b", "dgx-h100", **setup)
    decode, _, extend = found.basis.instance.recorded
    run = found.runs[0]
    # the first prompts are alone in their step; others generate beside all later ones
    assert run.first.min() - run.queued.min() == pytest.approx(90e6, rel=0.05)
    assert (decode.tokens, extend.tokens) == (32, 2048)
    last = nadi.serve("llama3-8b", "dgx-h100", **(setup | {"budget": 1 << 15, "input": 512}))
    gap = last.runs[0].last - last.runs[0].first
    assert gap == pytest.approx(8e6 * np.ones(32), rel=0.03)


def test_a_recording_without_steps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_bytes(recording_of_steps([("forward", [(0, 100)])]))
    with pytest.raises(InputError, match="no step of a serving engine"):
        nadi.serve("llama3-8b", "dgx-h100", rate=1, measured=str(tmp_path / "other.json"))
    (tmp_path / "other.json").write_bytes(recording_of_steps([("step[DECODE bs=2]", [(0, 1)])]))
    with pytest.raises(UsageError, match=r"of 2 tokens takes 1\.000 us, and is priced at"):
        nadi.serve("llama3-405b", "dgx-h100", rate=1, blocks=100,
                   measured=str(tmp_path / "other.json"))  # fmt: skip


@pytest.mark.skipif(not (SHARED / "wild").exists(), reason="needs recordings")
def test_a_recorded_decode_step_of_sglang_is_served() -> None:
    """Qwen3 8B on MI300X, 32 requests: 9.8 ms, which the price of 6.0 ms is scaled to."""
    measured = str(SHARED / "wild" / "amd_mi300_sglang_decode.json.gz")
    found = nadi.serve("qwen3-8b", "mi300x-node", measured=measured, **(LLAMA | {
        "input": 1023, "budget": 1 << 15,
    }))  # fmt: skip
    (step,) = found.basis.instance.recorded
    assert (step.kind, step.decodes, step.before) == ("decode", 32, 1024)
    assert step.measured == pytest.approx(9.77e6, rel=0.01)
    run = found.runs[0]
    assert (run.last - run.first) == pytest.approx(step.measured * np.ones(32), rel=0.03)
