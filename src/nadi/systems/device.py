"""A device's kernel model as values: peaks, bandwidth, and curves of what kernels reach of them.

Rates are per second and times ns; files give them with their units. ``docs/pricing.md`` has the
formulas, and where the shipped figures come from.
"""

import tomllib
from typing import Annotated, Any

import msgspec

from nadi.errors import FormatError
from nadi.units import lowered, parse_bytes, parse_operations, parse_rate

_Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]
_AtLeastOne = Annotated[float, msgspec.Meta(ge=1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
# up to which predicted time in ns, and the least and largest factor of it
_Band = tuple[_Positive, _Share, _AtLeastOne]
Errors = tuple[_Band, ...]

PLAIN_ERRORS: Errors = ((1e18, 0.9, 6.6),)
"""Measured over plain roofline: 90 % of the published rows (``verification/kernel_prices.py``)."""


class _Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A curve of one class; ``errors`` are bands of predicted time with their interval.

    ``errors`` has rows of a time in ns up to which it holds, and the factors of the predicted
    time between which 90 % of measurements lie. Times beyond the last row take the last.
    """


class GemmCurve(_Curve, frozen=True):
    """Matrix multiplications, in tiles that are spread over units (SMs) in waves."""

    # rows, columns, and share of a unit's peak that a tile of this size reaches
    tiles: tuple[tuple[_Count, _Count, _Share], ...]
    ramp: _NotNegative  # elements of k that the beginning and end of a tile take as long as
    memory: _Share  # share of the bandwidth
    # exponent with which time of arithmetic and of memory add up: infinite for the larger one
    overlap: _AtLeastOne
    floor: _NotNegative  # time in ns of the smallest kernel
    split: _NotNegative  # time in ns that a split of k adds
    errors: Errors


class AttentionCurve(_Curve, frozen=True):
    """Fused attention, forward and backward."""

    # forward, backward: share of the peak for long sequences and wide heads
    forward: _Share
    backward: _Share
    # factor of that share for a causal mask, where half of the work is left out
    causal: Annotated[float, msgspec.Meta(ge=0.5, le=1)]
    # size of a head whose operations at peak take as long as the softmax of a score
    softmax: _NotNegative
    ramp: _NotNegative  # keys that the beginning and end of a block of queries take as long as
    memory: _Share  # share of the bandwidth
    floor: _NotNegative  # time in ns of the smallest kernel
    errors: Errors


class MemoryCurve(_Curve, frozen=True):
    """Kernels bound by memory: ``floor`` in ns, then bytes at a share of the bandwidth.

    Bytes that fit into the cache take ``1 / cached`` of the time.
    """

    share: _Share
    cached: _AtLeastOne
    floor: _NotNegative
    errors: Errors


class RooflineCurve(_Curve, frozen=True):
    """Operations of which only operations and bytes are known: shares of peak and bandwidth."""

    compute: _Share
    memory: _Share
    overlap: _AtLeastOne
    floor: _NotNegative
    errors: Errors


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device as pricing sees it.

    Attributes
    ----------
    bandwidth
        Bytes per s of its memory.
    peak
        Operations per s of matrix multiplications, by PyTorch's name of the type;
        ``""`` for types that are not listed.
    units, cache
        Number of SMs or compute units, and bytes of the last-level cache; 0 if unknown.
    roofline, gemm, attention, memory
        Curves; those of ``memory`` by class, and ``""`` for classes without one.
    """

    bandwidth: _Positive
    peak: dict[str, _Positive]
    roofline: RooflineCurve
    name: str = ""
    about: str = ""
    source: str = ""
    units: _Count = 1
    cache: _Bytes = 0
    gemm: GemmCurve | None = None
    attention: AttentionCurve | None = None
    memory: dict[str, MemoryCurve] = {}

    def peak_of(self, dtype: str) -> float:
        """Give the peak of a type; of an 8-bit float that is not listed, that of another one."""
        found = self.peak.get(dtype)
        if found is None and dtype.startswith("float8"):
            found = max((rate for name, rate in self.peak.items() if name.startswith("float8")),
                        default=None)  # fmt: skip
        return self.peak[""] if found is None else found

    @property
    def is_plain(self) -> bool:
        """Whether it has no curves: a roofline of peak and bandwidth."""
        return self.gemm is None and not self.memory


def scaled_device(device: Device, peak: float, bandwidth: float) -> Device:
    """Return a device with other rates: its curves are shares of them.

    - ``peak``, ``bandwidth``: Operations per s of a type that is not listed, and bytes per s; 0 to
      keep them.
    """
    factor = peak / device.peak[""] if peak else 1.0
    peaks = {name: rate * factor for name, rate in device.peak.items()}
    return msgspec.structs.replace(
        device, peak=peaks, bandwidth=bandwidth or device.bandwidth
    )  # fmt: skip


def plain_device(
    peak: float, bandwidth: float, name: str = "", shares: tuple[float, float] = (1.0, 1.0)
) -> Device:
    """Return a device of which only peak and bandwidth are known.

    Parameters
    ----------
    peak, bandwidth
        Operations and bytes per s, positive.
    shares
        What operations reach of both.
    """
    curve = RooflineCurve(*shares, 64.0, 0.0, PLAIN_ERRORS)
    return Device(bandwidth, {"": peak}, curve, name)


def parse_device_file(content: bytes, name: str) -> Device:
    """Parse the content of a device's file (TOML).

    - Raises FormatError if it is invalid; the message names the path.
    """
    try:
        value = _with_numbers(tomllib.loads(content.decode()), name)
        found = msgspec.convert(value, Device)
    except msgspec.ValidationError as error:
        raise FormatError(name, lowered(str(error)), "see docs/pricing.md for the keys") from None
    except ValueError as error:  # TOML, UTF-8
        raise FormatError(name, lowered(str(error)), "correct the syntax: it is TOML") from None
    curves = [found.roofline, found.gemm, found.attention, *found.memory.values()]
    if "" not in found.peak or any(curve and not curve.errors for curve in curves):
        raise FormatError(
            name, 'a peak for "" or the errors of a curve are missing',
            "see docs/pricing.md for the keys",
        )  # fmt: skip
    return msgspec.structs.replace(found, name=name)


def _with_numbers(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Replace quantities with units by numbers."""
    value = dict(value)
    if isinstance(value.get("peak"), dict):
        value["peak"] = {
            key: _quantity(name, f"$.peak.{key}", text, parse_operations)
            for key, text in value["peak"].items()
        }
    for key, parse in (("bandwidth", parse_rate), ("cache", parse_bytes)):
        if key in value:
            value[key] = _quantity(name, f"$.{key}", value[key], parse)
    return value


def _quantity(name: str, where: str, text: object, parse: Any) -> Any:
    if not isinstance(text, str):
        raise FormatError(f"{name}: {where}", f"{text!r} has no unit", 'write it as "3.35 TB/s"')
    try:
        return parse(text)
    except ValueError as error:
        raise FormatError(f"{name}: {where}", str(error), "give another one") from None
