"""Charts on a page that works offline: drawings, and a few lines that say where the pointer is."""

from __future__ import annotations

from collections.abc import Sequence

from nadi.results.charts.chart_text import escape

_STYLE = """
body { margin: 0 auto; max-width: 860px; padding: 24px; background: #f5f7fa; color: #1f2933;
  font: 15px/1.5 Inter, "Helvetica Neue", Helvetica, Arial, sans-serif; }
h1 { font-size: 22px; margin: 0 0 16px; }
figure { margin: 0 0 20px; padding: 8px; background: #ffffff; border-radius: 8px;
  box-shadow: 0 1px 3px rgba(31, 41, 51, 0.18); }
svg { display: block; width: 100%; height: auto; }
circle, rect[data-said] { transition: r 80ms; }
circle.near { r: 6; stroke: #ffffff; stroke-width: 1.5; }
rect.near { stroke: #1f2933; stroke-width: 2; }
#said { position: fixed; pointer-events: none; display: none; white-space: pre; padding: 6px 10px;
  background: #1f2933; color: #ffffff; border-radius: 6px; font-size: 13px; line-height: 1.4; }
"""
# the nearest point of a drawing speaks, also where the pointer is beside it
_SCRIPT = """
const said = document.getElementById("said");
for (const drawing of document.querySelectorAll("svg")) {
  const shapes = [...drawing.querySelectorAll("circle, rect")].filter((one) => {
    const title = one.querySelector("title");
    if (title) { one.dataset.said = title.textContent; title.remove(); }
    return title;
  });
  drawing.querySelector(":scope > title")?.remove();
  let near = null;
  const leave = () => { near?.classList.remove("near"); near = null; said.style.display = "none"; };
  drawing.addEventListener("pointerleave", leave);
  drawing.addEventListener("pointermove", (event) => {
    let found = null, least = 60;
    for (const one of shapes) {
      const box = one.getBoundingClientRect();
      const away = Math.hypot(Math.max(box.left - event.clientX, 0, event.clientX - box.right),
        Math.max(box.top - event.clientY, 0, event.clientY - box.bottom));
      if (away < least) { least = away; found = one; }
    }
    leave();
    if (!found) return;
    near = found;
    near.classList.add("near");
    said.textContent = near.dataset.said;
    said.style.display = "block";
    const right = event.clientX + 16 + said.offsetWidth > window.innerWidth;
    said.style.left = `${event.clientX + (right ? -16 - said.offsetWidth : 16)}px`;
    said.style.top = `${event.clientY + 16}px`;
  });
}
"""


def page_of(drawings: Sequence[str], title: str) -> str:
    """Put drawings on a page of their own; nothing is loaded from elsewhere."""
    figures = "\n".join(f"<figure>\n{drawing}</figure>" for drawing in drawings)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{figures}\n"
        f'<div id="said"></div>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n'
    )
