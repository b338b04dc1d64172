"""Charts in files: SVG, a page that says what the pointer is at, and PNG.

SVG and HTML need no library and no network, and are some kB; PNG is drawn from the SVG by resvg.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nadi.errors import UsageError
from nadi.files.files import check_suffix, write_beside, write_pieces
from nadi.files.whole_folders import whole_files
from nadi.results.charts.charts import BarChart, Chart, HeatMap, LineChart, escape
from nadi.results.charts.drawing import drawn

CHART_FILES = (".html", ".png", ".svg")
CHART_PAGE = "index.html"  # of a folder
_PNG_PIXELS = 2  # per unit of the drawing


def write_charts(path: Path, charts: Sequence[Chart], title: str = "") -> None:
    """Write charts to a file; of which kind, its suffix says: one of ``CHART_FILES``.

    A page (``.html``) has any number of them, an image one.

    Raises
    ------
    UsageError
        If the suffix is none of these; if a PNG is asked for and the package that draws it, or a
        font, is missing.
    InputError
        If the file cannot be written.
    """
    check_suffix(path, CHART_FILES)
    drawings = [drawn(chart) for chart in charts]
    if path.suffix == ".html":
        content = page_of(drawings, title or charts[0].title).encode()
    elif path.suffix == ".svg":
        content = drawings[0].encode()
    else:
        content = _png(drawings[0], path)
    with write_beside(path) as file:
        file.write(content)


def write_chart_folder(
    folder: Path, contents: Mapping[str, bytes], charts: Mapping[str, Chart], title: str
) -> None:
    """Write files by their names, a page with all charts, and each chart as SVG; all or none.

    - Raises InputError if a file cannot be written.
    """
    names = (*contents, CHART_PAGE, *(f"{name}.svg" for name in charts))
    with whole_files([folder / name for name in names]) as places:
        for place, content in zip(places, contents.values(), strict=False):
            write_pieces(place, [content])
        page, *images = places[len(contents) :]
        write_charts(page, list(charts.values()), title)
        for image, chart in zip(images, charts.values(), strict=True):
            write_charts(image, [chart])


def _png(drawing: str, path: Path) -> bytes:
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise UsageError(
            str(path), "a PNG needs an optional package",
            "pip install 'nadi[charts]', or write .svg or .html",
        ) from None  # fmt: skip
    # where no font is installed, text is left out without a word
    empty = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
    text = empty.format('<text y="16" font-family="Arial, DejaVu Sans, sans-serif">N</text>')
    if svg_to_bytes(svg_string=text) == svg_to_bytes(svg_string=empty.format("")):
        raise UsageError(
            str(path), "a PNG needs a font, and none is installed",
            "install one, such as DejaVu Sans, or write .svg or .html",
        ) from None  # fmt: skip
    return bytes(svg_to_bytes(svg_string=drawing, zoom=_PNG_PIXELS, background="#ffffff"))


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


@dataclass(frozen=True, eq=False)
class Figure:
    """One or several charts, as ``plot()`` of many values returns them.

    Attributes
    ----------
    charts
        What is drawn, as values.
    """

    charts: Sequence[BarChart | LineChart | HeatMap]

    def __repr__(self) -> str:
        return f"<Figure {'; '.join(chart.title for chart in self.charts)}>"

    def _repr_html_(self) -> str:
        return "\n".join(self.svg())

    def svg(self) -> list[str]:
        """Return each chart as the text of an SVG file."""
        return [drawn(chart) for chart in self.charts]

    def save(self, path: Path | str) -> None:
        """Write the charts: all to an ``.html`` page, the first to ``.svg`` or ``.png``.

        Raises
        ------
        UsageError
            If the suffix is none of these; or for a PNG, if the package that draws it, or a font,
            is missing.
        InputError
            If the file cannot be written.
        """
        write_charts(Path(path), self.charts)


_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'  # HTML needs none


def chart_html(chart: Chart) -> str:
    """Draw a chart; what the pointer is at says its values."""
    return f'<div class="chart">{drawn(chart).replace(_NAMESPACE, "", 1)}</div>'
