"""The site builds without a warning, its links lead somewhere, and it asks no other server."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import nadi

ROOT = Path(__file__).resolve().parents[1]
pytest.importorskip("mkdocs", reason="the site needs the extra docs")


class Page(HTMLParser):
    """The links of a page, what a browser fetches for it, the names that links can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.pictures_without_text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(given["href"])
        self.fetched += [given[name] for name in ("src", "srcset", "data-src") if name in given]
        if tag == "img" and not given.get("alt"):
            self.pictures_without_text.append(given["src"])
        assert "mermaid" not in given.get("class", ""), "the theme would fetch a program for it"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=300,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def test_every_page_is_on_the_site(pages: dict[Path, Page], site: Path) -> None:
    docs = ROOT / "docs"
    names = {path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")}
    places = {name.parent if name.name == "README" else name for name in names}
    assert {site / place for place in places} <= {path.parent for path in pages}


def test_no_page_asks_another_server(pages: dict[Path, Page], site: Path) -> None:
    asked = {one for page in pages.values() for one in page.fetched}
    assert asked
    assert [one for one in asked if urlsplit(one).netloc] == []
    for style in site.rglob("*.css"):
        assert re.findall(r"@import|url\([\"']?(?:https?:)?//", style.read_text()) == []


def test_every_link_leads_to_a_page_and_a_section(pages: dict[Path, Page], site: Path) -> None:
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links count from the address of the site
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if parts.fragment:
                assert unquote(parts.fragment) in pages[target].ids, f"{path}: {link}"


def test_every_picture_has_a_text(pages: dict[Path, Page]) -> None:
    assert {path: page.pictures_without_text for path, page in pages.items()
            if page.pictures_without_text} == {}  # fmt: skip


def test_the_reference_has_every_public_name(site: Path) -> None:
    packages = [name for name in nadi.__all__ if inspect.ismodule(getattr(nadi, name))]
    for place, package in {
        "nadi": nadi,
        **{f"nadi.{one}": getattr(nadi, one) for one in packages},
    }.items():
        text = (site / "reference" / place / "index.html").read_text()
        for name in package.__all__:
            assert f"{place}.{name}" in text or name in packages, f"{place}.{name}"
