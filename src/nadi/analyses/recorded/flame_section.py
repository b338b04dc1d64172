"""Flame graphs: time by path of calls, and by module."""

from __future__ import annotations

from html import escape
from typing import Any

from nadi.results.page.figures import Figures
from nadi.units import printable

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Flame graph"
ORDER = 32
_NAME = 200  # letters
_HELP = (
    "A frame is as wide as its time with all that is nested in it. A click zooms in. By "
    "keyboard: arrows go from frame to frame, Enter zooms in, Escape zooms out."
)
_CALLS = "by calls: Python functions, annotations, operators; all ranks and steps of the window"
_MODULES = "by module"
_TIMES = ("calls", "total_ns", "self_ns", "device_ns")


def render(figures: Figures) -> str:
    """Write the frames as lines, which a script of the page draws."""
    found = {
        "calls": (_CALLS, figures.rows("flame", "calls")),
        "modules": (_MODULES, figures.rows("flame", "modules")),
    }
    boxes = [_box(name, title, frames) for name, (title, frames) in found.items()
             if len(frames) > 1]  # fmt: skip
    return "\n".join([*boxes, f"<small>{_HELP}</small>"]) if boxes else ""


def _box(name: str, title: str, frames: list[dict[str, Any]]) -> str:
    lines = "\n".join(
        "\t".join([
            str(frame["depth"]), *(str(frame[time]) for time in _TIMES),
            printable(frame["name"], _NAME),
        ])
        for frame in frames
    )  # fmt: skip
    device = any(frame["device_ns"] for frame in frames)
    choice = (
        "<button class=button data-measure=3 aria-pressed=false>time on devices</button>"
        if device
        else ""
    )
    return f"""<div class=flame id="flame-{name}"><h3>{title}</h3>
<div class=tools><button class=button data-measure=1 aria-pressed=true>time on the host</button>
{choice}<button class=button data-out>all</button>
<input type=search placeholder="search frames" aria-label="search frames">
<output></output></div>
<div class=frames tabindex=0 role=application aria-label="flame graph {title}"></div>
<p class=frame-details role=status></p>
<pre hidden>{escape(lines)}</pre></div>"""
