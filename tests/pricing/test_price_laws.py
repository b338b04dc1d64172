"""What holds of every price, on every shipped device."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nadi.systems import Device, PriceList, load_device, plain_device, price, shipped_devices
from nadi.systems.device import scaled_device
from nadi.trace import Operations, dtype_code, op_class_code
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from tests.amounts import examples
from tests.reference import kernel_times

UNKNOWN = (-1, -1, -1, -1)
DEVICES = [*map(load_device, shipped_devices()), plain_device(1e14, 1e12, "plain")]
BOUND = [name for name in OP_CLASSES if name not in ("", "gemm", "attention")]
sizes = st.tuples(
    st.integers(1, 64), st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000)
)
heads = st.tuples(
    st.integers(1, 2048), st.integers(1, 9000), st.integers(1, 9000), st.sampled_from([64, 128])
)
amounts = st.integers(0, 1 << 48)
devices = st.sampled_from(DEVICES)
dtypes = st.sampled_from(["", "bfloat16", "float16", "float32", "float8_e4m3fn"])


def operations(*rows: tuple[str, str, int, int, tuple[int, ...]]) -> Operations:
    """Return rows of class, type, operations, bytes and shape as columns."""
    names, types, flops, moved, shapes = zip(*rows, strict=True)
    return Operations(
        np.array(flops), np.array(moved), np.array(list(map(op_class_code, names))),
        np.array(list(map(dtype_code, types))), np.array(shapes),
    )  # fmt: skip


def checked(found: PriceList) -> list[int]:
    """Return prices, each of which is in its interval."""
    has_price = found.duration >= 0
    assert (found.low <= found.duration).all()
    assert (found.duration <= found.high).all()
    assert ((found.source > 0) == has_price).all()
    return found.duration.tolist()


def peak_of(device: Device, dtype: str) -> float:
    other = [rate for name, rate in device.peak.items() if dtype[:6] == name[:6] == "float8"]
    return device.peak.get(dtype, max(other, default=device.peak[""]))


def test_an_8_bit_float_of_another_type_has_the_rate_of_the_listed_one() -> None:
    shape = (1, 4096, 4096, 4096)
    rows = [("gemm", name, -1, -1, shape) for name in (
        "float8_e4m3fn", "float8_e4m3fnuz", "bfloat16")]  # fmt: skip
    for device in DEVICES:
        found = price(operations(*rows), device).duration
        assert found[0] == found[1]
        assert found[0] < found[2] or not any(name.startswith("float8") for name in device.peak)


@settings(max_examples=examples(100), deadline=None)
@given(devices, dtypes, sizes, st.integers(0, 3), st.integers(1, 4))
def test_larger_matrices_never_take_less(
    device: Device, dtype: str, shape: tuple[int, ...], which: int, factor: int
) -> None:
    larger = tuple(size * factor if place == which else size for place, size in enumerate(shape))
    rows = [("gemm", dtype, -1, -1, one) for one in (shape, larger)]
    before, after = checked(price(operations(*rows), device))
    assert after >= before


@settings(max_examples=examples(100), deadline=None)
@given(devices, dtypes, heads, st.integers(0, 2), st.integers(1, 4), st.floats(0.1, 2.5),
       st.floats(0.1, 2.5))  # fmt: skip
def test_more_attention_never_takes_less(
    device: Device, dtype: str, shape: tuple[int, ...], which: int, factor: int, one: float,
    other: float,
) -> None:  # fmt: skip
    whole = 4 * int(np.prod(shape, dtype=np.int64))
    part, larger_part = sorted((one, other))
    rows = [("attention", dtype, int(whole * part), 0, shape),
            ("attention", dtype, int(whole * larger_part), 0, shape)]  # fmt: skip
    before, after = checked(price(operations(*rows), device))
    assert after >= before - 1  # whole ns
    larger = tuple(size * factor if place == which else size for place, size in enumerate(shape))
    rows = [("attention", dtype, -1, -1, one) for one in (shape, larger)]
    before, after = checked(price(operations(*rows), device))
    assert after >= before


@settings(max_examples=examples(100), deadline=None)
@given(devices, dtypes, st.sampled_from([*BOUND, "", "gemm", "attention"]), amounts, amounts,
       amounts)  # fmt: skip
def test_more_work_of_one_class_never_takes_less(
    device: Device, dtype: str, op_class: str, flops: int, moved: int, more: int
) -> None:
    rows = [
        (op_class, dtype, flops, moved, UNKNOWN), (op_class, dtype, flops + more, moved, UNKNOWN),
        (op_class, dtype, flops, moved + more, UNKNOWN),
    ]  # fmt: skip
    before, *after = checked(price(operations(*rows), device))
    assert min(after) >= before


@settings(max_examples=examples(100), deadline=None)
@given(devices, dtypes, st.sampled_from(OP_CLASSES), sizes, amounts, amounts,
       st.floats(1, 10), st.floats(1, 10))  # fmt: skip
def test_a_faster_device_is_never_slower(
    device: Device, dtype: str, op_class: str, shape: tuple[int, ...], flops: int, moved: int,
    compute: float, memory: float,
) -> None:  # fmt: skip
    faster = scaled_device(device, device.peak[""] * compute, device.bandwidth * memory)
    rows = operations(
        (op_class, dtype, flops, moved, shape), (op_class, dtype, flops, moved, UNKNOWN)
    )
    before, after = checked(price(rows, device)), checked(price(rows, faster))
    assert all(a <= b for a, b in zip(after, before, strict=True))


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from([d for d in DEVICES if not d.is_plain]), dtypes, sizes, heads, amounts,
       amounts, st.sampled_from(BOUND))  # fmt: skip
def test_prices_equal_those_of_plain_python(
    device: Device, dtype: str, shape: Any, fused: Any, flops: int, moved: int, op_class: str
) -> None:
    rows = operations(
        ("gemm", dtype, -1, moved, shape), ("attention", dtype, flops, moved, fused),
        (op_class, dtype, flops, moved, UNKNOWN), ("", dtype, flops, moved, UNKNOWN),
    )  # fmt: skip
    peak = peak_of(device, dtype)
    expected = [
        kernel_times.gemm(device, shape, moved, peak),
        kernel_times.attention(device, fused, flops, moved, peak),
        kernel_times.memory(device, op_class, flops, moved, peak),
        kernel_times.roofline(device, flops, moved, peak),
    ]
    assert checked(price(rows, device)) == pytest.approx(expected, rel=1e-9, abs=1)


def test_equal_rows_have_equal_prices_in_any_order() -> None:
    rng = np.random.default_rng(5)
    size = 200_000
    rows = Operations(
        rng.integers(0, 9, size), rng.integers(0, 9, size), rng.integers(0, len(OP_CLASSES), size),
        rng.integers(0, len(DTYPE_NAMES), size), rng.integers(1, 3, (size, 4)),
    )  # fmt: skip
    whole = price(rows, DEVICES[0])
    order = rng.permutation(size)
    again = price(rows.at(order), DEVICES[0])
    assert all((a[order] == b).all() for a, b in zip(whole, again, strict=True))


def test_what_states_nothing_has_no_price() -> None:
    found = price(operations(("gemm", "", -1, -1, UNKNOWN), ("", "", 0, -1, UNKNOWN)), DEVICES[0])
    assert checked(found)[0] == -1
    assert found.duration[1] >= 0


def test_the_plain_roofline_is_the_larger_of_both_times() -> None:
    device = plain_device(1e12, 1e9)
    found = price(operations(("", "", 5_000, 4, UNKNOWN), ("", "", 5_000, 7, UNKNOWN)), device)
    assert found.duration.tolist() == [5, 7]


@pytest.mark.parametrize("name", shipped_devices())
def test_curves_of_shipped_devices_keep_the_laws(name: str) -> None:
    device = load_device(name)
    curves = [device.gemm, device.attention, device.roofline, *device.memory.values()]
    assert all(curve and curve.errors for curve in curves)
    assert device.attention
    assert device.attention.backward <= device.attention.forward
    assert msgspec.json.decode(msgspec.json.encode(device), type=Device) == device
