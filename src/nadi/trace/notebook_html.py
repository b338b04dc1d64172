"""How values show themselves in a notebook: a short table and a small chart, as HTML.

Styles stand within elements, and colors follow those of the notebook, light or dark.
"""

from collections.abc import Mapping, Sequence
from html import escape

from nadi.units import format_ns, format_percent, printable

_MOST_BARS = 12
_LONGEST = 100  # letters of a text
_CELL = "text-align:left;padding:1px 14px 1px 0;border:0;background:none"


def notebook_html(
    title: str, facts: Mapping[str, str], bars: Sequence[tuple[str, float, str]] = ()
) -> str:
    """Write a value for a notebook.

    - ``title``: What it is.
    - ``facts``: Texts by their names.
    - ``bars``: Label, length and text of each bar; the longest is as wide as the chart, and those
      beyond the first 12 are counted only.
    """
    rows = "".join(
        f'<tr><td style="{_CELL};opacity:.7">{_shown(name)}</td>'
        f'<td style="{_CELL}">{_shown(text)}</td></tr>'
        for name, text in facts.items()
    )
    longest = max((length for _, length, _ in bars), default=0)
    chart = "".join(
        f'<tr><td style="{_CELL}">{_shown(label)}</td><td style="{_CELL};width:220px">'
        f'<div style="height:9px;background:#4f81bd;width:{_percent(length, longest)}"></div></td>'
        f'<td style="{_CELL}">{_shown(text)}</td></tr>'
        for label, length, text in bars[:_MOST_BARS]
    )
    more = f"<div>and {len(bars) - _MOST_BARS} more</div>" if len(bars) > _MOST_BARS else ""
    tables = "".join(
        f'<table style="border:0;margin:4px 0">{content}</table>'
        for content in (rows, chart)
        if content
    )
    return f"<div><b>{_shown(title)}</b>{tables}{more}</div>"


def times_of(parts: Mapping[str, int]) -> list[tuple[str, float, str]]:
    """Return bars of times in ns that add up to a whole, without those of 0."""
    whole = sum(parts.values())
    return [
        (name, time, f"{format_ns(time)}, {format_percent(time, whole)}")
        for name, time in parts.items()
        if time
    ]


def _shown(text: str) -> str:
    return escape(printable(text, _LONGEST))


def _percent(length: float, longest: float) -> str:
    return f"{100 * length / longest:.1f}%" if longest > 0 else "0"
