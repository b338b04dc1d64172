"""Charts in files: SVG, a page that says what the pointer is at, and PNG.

SVG and HTML need no library and no network, and are some kB; PNG is drawn from the SVG by resvg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nadi.errors import UsageError
from nadi.files.files import check_suffix, write_beside, write_pieces
from nadi.files.whole_folders import whole_files
from nadi.results.charts.chart_page import page_of
from nadi.results.charts.charts import Chart
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

    Raises
    ------
    InputError
        If a file cannot be written.
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
