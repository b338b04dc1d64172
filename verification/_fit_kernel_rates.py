"""Fit the curves of the shipped devices to published measurements, and write them.

Reads ``../shared/data/published`` and rewrites what stands below the marker in each file of
``src/nadi/data/devices``; nothing else of these files is changed. Only rows that are not held out
are used (``_published_kernels.py``), and ``kernel_prices.py`` judges the curves by the others.
Residuals for intervals come from curves that were fitted without the model of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from _published_kernels import Row, published_rows

from nadi.systems.device import (
    AttentionCurve,
    Device,
    GemmCurve,
    MemoryCurve,
    RooflineCurve,
    parse_device_file,
)
from nadi.systems.prices.price_list import attention_ns, gemm_ns, memory_ns, roofline_ns
from nadi.trace.arrays import Floats

DEVICES = Path(__file__).resolve().parents[1] / "src" / "nadi" / "data" / "devices"
MARKER = "# Below: written by verification/_fit_kernel_rates.py\n"
NO_ERRORS = ((1.0, 1.0, 1.0),)
BANDS = (20_000.0, 100_000.0, 1e18)  # of predicted time
TAIL = 0.035  # of residuals outside of an interval on each side, half of what it may be elsewhere
LEAST_ROWS = 20  # of a band; with fewer it takes all rows
MARGIN = 0.02  # of an interval beyond the residuals, for what repeated runs differ by
_NEWER_BACKWARD = 305 / 500  # of the forward's rate: fa2-fa3-h100-issue1051
TRIES = 2  # searches from other places
MOST = 1500  # rows of a fit
SHAPES = ((256, 128, 0), (128, 256, 0), (128, 128, 1), (128, 64, 2), (64, 128, 2), (64, 64, 3),
          (64, 32, 4), (32, 64, 4))  # fmt: skip
MEASURED = ("a100", "a40", "h100")
POOL = ("add", "activation", "rope", "norm")  # of classes that nobody measured

Curve = GemmCurve | AttentionCurve | MemoryCurve | RooflineCurve


class Columns:
    """Rows as arrays."""

    def __init__(self, rows: Sequence[Row], device: Device) -> None:
        self.shape = np.array([row.shape for row in rows], dtype=np.float64).reshape(-1, 4)
        self.flops = np.array([row.flops for row in rows], dtype=np.float64)
        self.size = np.array([row.bytes for row in rows], dtype=np.float64)
        self.time = np.array([max(row.time, 500.0) for row in rows])
        self.group = np.array([row.group for row in rows])
        self.peak = np.array([device.peak.get(row.dtype, device.peak[""]) for row in rows])
        self.dtype = np.array([row.dtype for row in rows])


def predict(curve: Curve, device: Device, rows: Columns) -> Floats:
    """Return the times of rows by a curve of any kind."""
    if isinstance(curve, GemmCurve):
        return gemm_ns(curve, device, rows.shape, rows.size, rows.peak)
    if isinstance(curve, AttentionCurve):
        return attention_ns(curve, device, rows.shape, rows.flops, rows.size, rows.peak)
    of = memory_ns if isinstance(curve, MemoryCurve) else roofline_ns
    return of(curve, device, rows.flops, rows.size, rows.peak)  # type: ignore[arg-type]


def gemm_curve(x: Floats) -> GemmCurve:
    """Return the curve with these parameters."""
    share = np.minimum.accumulate(np.minimum(x[:5], 0.95))  # larger tiles reach more
    tiles = tuple((rows, columns, float(share[e])) for rows, columns, e in SHAPES)
    return GemmCurve(tiles, x[5], min(x[6], 1.0), max(1.0, x[7]), x[8], x[9], NO_ERRORS)


def memory_curve(x: Floats) -> MemoryCurve:
    """Return the curve with these parameters."""
    return MemoryCurve(min(x[0], 1.0), max(x[1], 1.0), x[2], NO_ERRORS)


def roofline_curve(x: Floats) -> RooflineCurve:
    """Return the curve with these parameters."""
    return RooflineCurve(min(x[0], 1.0), min(x[1], 1.0), max(1.0, x[2]), x[3], NO_ERRORS)


def attention_curve(x: Floats, softmax: float = 0.0) -> AttentionCurve:
    """Return the curve with these parameters; the backward pass is set from another table."""
    softmax = softmax or x[3]
    forward = min(x[0], 1.0)
    causal = min(max(x[1], 0.5), 1.0)
    return AttentionCurve(forward, 0.95 * forward, causal, softmax, x[2], 0.9, 3000.0, NO_ERRORS)


STARTS: dict[Callable[[Floats], Curve], Sequence[float]] = {
    gemm_curve: (0.8, 0.75, 0.65, 0.5, 0.3, 60, 0.9, 4, 2000, 3000),
    memory_curve: (0.7, 1.5, 1500),
    roofline_curve: (0.7, 0.85, 3, 3000),
    attention_curve: (0.7, 0.9, 60, 130),
}


def fitted(
    make: Callable[[Floats], Curve], device: Device, rows: Columns, weight: Floats
) -> Curve:  # fmt: skip
    """Return the curve with the least mean absolute logarithm of predicted over measured.

    A search along one parameter after the other, with steps that grow and shrink.
    """
    goal = np.log(rows.time)
    weight = weight / weight.sum()

    def loss(x: Floats) -> float:
        return float((np.abs(np.log(predict(make(x), device, rows)) - goal) * weight).sum())

    start = np.array(STARTS[getattr(make, "func", make)], dtype=np.float64)
    rng = np.random.default_rng(0)
    starts = [start, *(start * np.exp(rng.normal(0, 0.2, start.size)) for _ in range(TRIES))]
    x = min((descended(loss, one) for one in starts), key=loss)
    return make(x)


def descended(loss: Callable[[Floats], float], x: Floats) -> Floats:
    """Return the parameters that a search from ``x`` ends at."""
    step = np.full(x.size, 0.25)
    best, rng = loss(x), np.random.default_rng(0)
    for _ in range(80):
        for i in rng.permutation(x.size):
            for sign in (1, -1):
                other = x.copy()
                other[i] *= np.exp(sign * step[i])
                if (found := loss(other)) < best - 1e-7:
                    x, best = other, found
                    step[i] *= 1.5
                    break
            else:
                step[i] *= 0.6
        if step.max() < 0.005:
            break
    return x


def thinned(rows: Sequence[Row]) -> list[Row]:
    """Return a part of many rows."""
    chosen = np.random.default_rng(0).permutation(len(rows))[:MOST]
    return [rows[k] for k in sorted(chosen)]


def weights(rows: Columns) -> Floats:
    """Return weights, so that few rows of one type count a fifth of the many of another."""
    eight = np.char.startswith(rows.dtype.astype(str), "float8")
    if not 0 < eight.sum() < eight.size:
        return np.ones(eight.size)
    shares: Floats = np.where(eight, 0.2 / eight.sum(), 0.8 / (~eight).sum())
    return shares


def learned(
    make: Callable[[Floats], Curve], device: Device, rows: Sequence[Row]
) -> tuple[Curve, list[tuple[float, float]]]:
    """Fit a curve; also return predicted time and measured over predicted of rows."""
    rows = thinned(rows)
    columns = Columns(rows, device)
    curve = fitted(make, device, columns, weights(columns))
    predicted = predict(curve, device, columns)
    found = list(zip(predicted.tolist(), (columns.time / predicted).tolist(), strict=True))
    models = sorted({row.group for row in rows if "/" in row.group})
    for model in models if len(models) > 1 else []:
        others = Columns([row for row in rows if row.group != model], device)
        own = Columns([row for row in rows if row.group == model], device)
        without = fitted(make, device, others, weights(others))
        predicted = predict(without, device, own)
        found += zip(predicted.tolist(), (own.time / predicted).tolist(), strict=True)
    return curve, found


def bands(found: Sequence[tuple[float, float]], least: float = 0.0) -> tuple[
    tuple[float, float, float], ...
]:  # fmt: skip
    """Return the intervals of residuals by predicted time; ``least`` is their half width."""
    time, ratio = np.array(found).T
    out = []
    begin = 0.0
    for end in BANDS:
        inside = ratio[(time > begin) & (time <= end)]
        inside = inside if inside.size >= LEAST_ROWS else ratio
        low, high = np.quantile(inside, [TAIL, 1 - TAIL])
        low, high = min(low, 1.0, 1 - least) * (1 - MARGIN), max(high, 1.0, 1 + least)
        out.append((end, rounded(low), rounded(high * (1 + MARGIN))))
        begin = end
    return tuple(out)


def rounded(value: float) -> float:
    """Return a number with four significant digits."""
    return float(f"{value:.4g}")


def with_errors(curve: Curve, found: Sequence[tuple[float, float]], least: float = 0.0) -> Curve:
    """Return a curve with its intervals."""
    return msgspec.structs.replace(curve, errors=bands(found, least))


def of_class(rows: Sequence[Row], *names: str) -> list[Row]:
    """Return the rows of some classes."""
    return [row for row in rows if row.op_class in names]


def measured_curves(device: Device, rows: list[Row], name: str) -> dict[str, Curve]:
    """Fit all curves of a device with measurements of its own."""
    curves: dict[str, Curve] = {}
    many: dict[str, Callable[[Floats], Curve]] = {"roofline": roofline_curve, "gemm": gemm_curve}
    for key, make in many.items():
        curve, found = learned(make, device, of_class(rows, "gemm"))
        curves[key] = with_errors(curve, found)
    for key in ("norm", "add", "activation", "rope", "embedding", "copy"):
        if own := of_class(rows, key):
            curve, found = learned(memory_curve, device, own)
            curves[f"memory.{key}"] = with_errors(curve, found)
    for key, names in (("elementwise", POOL[:3]), ("", POOL)):
        curve, found = learned(memory_curve, device, of_class(rows, *names))
        curves[f"memory.{key}"] = with_errors(curve, found)
    print(name, {key: curve.errors for key, curve in curves.items()})
    return curves


def transferred(
    curves: dict[str, dict[str, Curve]], devices: dict[str, Device], rows: list[Row]
) -> dict[str, Curve]:
    """Return H100's curves with intervals for devices that nobody measured.

    They hold what the curves of each measured device miss on each other measured device.
    """
    out = {}
    for key, curve in curves["h100"].items():
        found: list[tuple[float, float]] = []
        names = {"memory.": POOL, "memory.elementwise": POOL[:3], "roofline": ("gemm",)}
        for one in MEASURED:
            for other in MEASURED:
                if key not in curves[one]:
                    continue
                chosen = names.get(key, (key.removeprefix("memory."),))
                own = [row for row in of_class(rows, *chosen) if row.device == other]
                if not own:
                    continue
                columns = Columns(thinned(own), devices[other])
                predicted = predict(curves[one][key], devices[other], columns)
                found += zip(predicted.tolist(), (columns.time / predicted).tolist(), strict=True)
        out[key] = with_errors(curve, found)
    return out


def text_of(curves: dict[str, Curve], how: dict[str, str]) -> str:
    """Write curves as TOML."""
    lines = [MARKER]
    for key, curve in sorted(curves.items()):
        head, _, rest = key.partition(".")
        lines.append(f"# {how.get(key, how[''])}\n")
        lines.append(f'[{head}."{rest}"]\n' if head == "memory" else f"[{head}]\n")
        fields = curve.__struct_fields__
        lines += [f"{field} = {_toml(getattr(curve, field))}\n" for field in fields]
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def heads() -> tuple[dict[str, str], dict[str, Device]]:
    """Return the part of each file that is written by hand, as text and as a device."""
    texts, devices = {}, {}
    unknown = "[roofline]\ncompute = 1\nmemory = 1\noverlap = 1\nfloor = 0\nerrors = [[1, 1, 1]]\n"
    for path in sorted(DEVICES.glob("*.toml")):
        texts[path.stem] = path.read_text().partition(MARKER)[0].rstrip("\n") + "\n\n"
        devices[path.stem] = parse_device_file((texts[path.stem] + unknown).encode(), path.stem)
    return texts, devices


def attention_curves(devices: dict[str, Device], rows: list[Row]) -> dict[str, Curve]:
    """Fit attention where it was measured, and carry it over elsewhere, with wider intervals."""
    own: dict[str, AttentionCurve] = {}
    softmax = 0.0
    for name in ("gb200", "a100"):
        chosen = [row for row in of_class(rows, "attention") if row.device == name]
        # heads of two sizes say what the softmax takes, and one size does not
        make = partial(attention_curve, softmax=softmax)
        curve, found = learned(make, devices[name], chosen)
        assert isinstance(curve, AttentionCurve)
        softmax = curve.softmax
        own[name] = msgspec.structs.replace(curve, errors=bands(found, 0.25))
    # H100: two rows, forward and backward, whose ratio the others take too
    forward, backward = sorted(
        (row for row in of_class(rows, "attention") if row.device == "h100"), key=lambda r: r.flops
    )
    columns = Columns([forward], devices["h100"])
    share = own["a100"].forward
    for _ in range(50):  # until the curve meets the row
        tried = msgspec.structs.replace(own["a100"], forward=share)
        share *= float(predict(tried, devices["h100"], columns)[0] / forward.time)
    ratio = backward.flops / backward.time / (forward.flops / forward.time)
    a100 = own["a100"]
    h100 = msgspec.structs.replace(
        a100, forward=share, errors=((1e18, 0.45, 1.45),)
    )  # newer kernels than the one in the table are up to twice as fast
    out = {"a100": a100, "h100": h100, "gb200": own["gb200"]}
    out |= {"h200": h100, "a40": msgspec.structs.replace(a100, errors=((1e18, 0.6, 1.7),))}
    out["b200"] = msgspec.structs.replace(own["gb200"], errors=((1e18, 0.7, 1.45),))
    out["mi300x"] = msgspec.structs.replace(h100, errors=((1e18, 0.45, 2.2),))
    # FlashAttention-4's forward was measured alone; its backward is as FlashAttention-3's
    ratios = {"b200": _NEWER_BACKWARD, "gb200": _NEWER_BACKWARD}
    return {
        name: msgspec.structs.replace(
            curve, backward=curve.forward * ratios.get(name, min(ratio, 1.0))
        )
        for name, curve in out.items()
    }


def levelled(curve: Curve, device: Device, rows: list[Row]) -> Curve:
    """Return a curve of matrix multiplications that meets the rate of a row."""
    assert isinstance(curve, GemmCurve)
    columns, factor = Columns(rows, device), 1.0
    tried = curve
    for _ in range(50):
        factor *= float(np.median(predict(tried, device, columns) / columns.time))
        tiles = tuple((m, n, min(share * factor, 1.0)) for m, n, share in curve.tiles)
        tried = msgspec.structs.replace(curve, tiles=tiles)
    return tried


FITTED = "fitted to the rows of ../shared/data/published that are not held out"
CARRIED = "H100's curve; its interval: what curves of one device miss on another"


def main() -> None:
    """Fit and write all curves."""
    texts, devices = heads()
    rows = [row for row in published_rows() if not row.is_held_out]
    of_device = {name: [row for row in rows if row.device == name] for name in devices}
    curves = {name: measured_curves(devices[name], of_device[name], name) for name in MEASURED}
    attention = attention_curves(devices, rows)
    curves["h100"]["memory.copy"] = curves["a100"]["memory.copy"]
    carried = transferred(curves, devices, rows)
    curves["h100"]["memory.copy"] = carried["memory.copy"]
    for name, text in texts.items():
        how = {"": FITTED, "attention": "docs/pricing.md says what it was fitted to"}
        if name in MEASURED:
            own = dict(curves[name])
            how["memory.copy"] = CARRIED if name == "h100" else FITTED
        else:
            own = dict(curves["h100"]) if name == "h200" else dict(carried)
            how[""] = "H100's curve and interval" if name == "h200" else CARRIED
        if name == "h200":
            curve, found = learned(memory_curve, devices[name], of_class(of_device[name], "copy"))
            own["memory.copy"] = with_errors(curve, found)
            how["memory.copy"] = FITTED
        own["attention"] = attention[name]
        if name == "mi300x":
            own["gemm"] = levelled(own["gemm"], devices[name], of_class(of_device[name], "gemm"))
            how["gemm"] = f"{CARRIED}; its level: the device's own best rate"
        path = DEVICES / f"{name}.toml"
        path.write_text(text + text_of(own, how))
        parse_device_file(path.read_bytes(), name)


if __name__ == "__main__":
    main()
