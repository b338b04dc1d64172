"""The machine of a LogGP model: six numbers."""

from __future__ import annotations

from dataclasses import dataclass

from nadi.errors import Parameter, UsageError
from nadi.units import parse_bytes, parse_ns, parse_rate

__all__ = ["LogGP", "time_per_byte"]

_PS = 1000  # in a ns
_LARGEST = 2**40  # ns, of one parameter: 18 minutes


@dataclass(frozen=True)
class LogGP:
    """What a message costs.

    A send of s bytes occupies its processor for ``overhead + (s - 1) overhead_per_byte`` and its
    network interface for ``gap + (s - 1) gap_per_byte``. Its first byte arrives ``latency +
    overhead`` after it began. When a processor and an interface of the receiver are free, the
    message occupies them for ``overhead + (s - 1)`` times the larger of both times per byte, and
    ``gap + (s - 1) gap_per_byte``, whether it is waited for or not.

    Attributes
    ----------
    latency, overhead, gap
        ns; L, o and g of the model.
    gap_per_byte, overhead_per_byte
        Picoseconds; G and O. 20 ps per byte are 50 GB/s.
    eager_limit
        Bytes; S. A larger message has to wait for its receive: rendezvous.

    Raises
    ------
    UsageError
        If one is negative or above 2^40.

    Notes
    -----
    A. Alexandrov et al., LogGP: Incorporating Long Messages into the LogP Model (SPAA 1995); T.
    Hoefler et al., LogGOPSim (LSAP 2010), adds O and S.
    """

    latency: int
    overhead: int
    gap: int
    gap_per_byte: int
    overhead_per_byte: int = 0
    eager_limit: int = 65535

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value <= _LARGEST:
                raise UsageError(
                    Parameter(name, str(value)), "it is negative or too large",
                    "choose 0 to 2^40 ns, ps per byte, or bytes",
                )  # fmt: skip

    @staticmethod
    def of_texts(
        latency: str, overhead: str, gap: str, gap_per_byte: str, overhead_per_byte: str = "0 ns",
        eager_limit: str = "65535 B",
    ) -> LogGP:  # fmt: skip
        """Read quantities such as ``2.5us``, ``50GB/s`` or ``20ps`` per byte, and ``64KiB``.

        Raises
        ------
        UsageError
            If one is not such a quantity.
        """
        texts = {
            "latency": (latency, parse_ns), "overhead": (overhead, parse_ns),
            "gap": (gap, parse_ns), "gap_per_byte": (gap_per_byte, time_per_byte),
            "overhead_per_byte": (overhead_per_byte, time_per_byte),
            "eager_limit": (eager_limit, parse_bytes),
        }  # fmt: skip
        found = {}
        for name, (text, parse) in texts.items():
            try:
                found[name] = parse(text)
            except ValueError as error:
                raise UsageError(Parameter(name), str(error)) from None
        return LogGP(**found)


def time_per_byte(text: str) -> int:
    """Read a time per byte, such as ``6 ns`` or ``20 ps``, or a rate such as ``50 GB/s``; ps.

    Raises
    ------
    ValueError
        If the text is neither; the message shows valid examples.
    """
    stripped = text.strip()
    if stripped.endswith("/s"):
        return round(1e12 / parse_rate(stripped))
    if stripped.endswith("ps"):
        return round(parse_ns(stripped[:-2] + "ns"))
    try:
        return parse_ns(stripped) * _PS
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time per byte such as 6ns or 20ps, or a rate such as 50GB/s"
        ) from None
