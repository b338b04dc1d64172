"""Small models and machines at random."""

from __future__ import annotations

from hypothesis import strategies as st

from nadi.memory.offloading.flexgen_costs import Inference, OffloadMachine

__all__ = ["CASES"]

_RATES = st.sampled_from([1e8, 3e8, 1e9, 5e9, 2e10])
_FLOPS = st.sampled_from([1e10, 1e11, 1e12])
_SIZES = st.floats(0.02, 2.0)  # of the weights


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Inference, OffloadMachine]:
    hidden = draw(st.sampled_from([128, 256, 4096]))
    weights = 24.0 * hidden**2
    asked = Inference(
        draw(st.integers(1, 300)), draw(st.integers(1, 60)), draw(st.integers(3, 9)), hidden, 8,
        4 * hidden, weights, weights, 4.0 * hidden,
    )  # fmt: skip
    names = [field for field in OffloadMachine.__struct_fields__ if "_to_" in field]
    compute = [
        "prefill_matmul", "prefill_attention", "decode_matmul", "decode_attention", "cpu_attention",
    ]  # fmt: skip
    rates = {name: draw(_RATES) for name in names} | {name: draw(_FLOPS) for name in compute}
    size = weights * asked.layers
    sizes = {name: draw(_SIZES) * size for name in ("gpu_memory", "cpu_memory")}
    sizes["disk"] = draw(st.sampled_from([0.0, size, 30 * size]))
    slopes = draw(st.sampled_from([(0.0, 0.0, 0.0), (0.0328, 0.0621, 0.0168)]))
    slope_names = ("batch_slope", "width_slope", "joint_slope")
    return asked, OffloadMachine(**rates, **sizes, **dict(zip(slope_names, slopes, strict=True)))


CASES = _cases()
