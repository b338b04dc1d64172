"""What the site adds to the pages of this folder: other files of the project, and the reference."""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import nadi

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.generate import home_of_names, public_packages, summary  # noqa: E402  found by the path

OUTSIDE = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md",
           *(str(file.relative_to(ROOT)) for file in (ROOT / "examples").rglob("*.*")
             if file.suffix in {".py", ".ipynb", ".json", ".toml"})]  # fmt: skip
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """List the pages of the reference, which are made, in the navigation."""
    pages = [{name: f"reference/{name}.md"} for name in public_packages()]
    config.nav.append({"Reference": [{"Commands": "cli.md"}, {"Python": ["api.md", *pages]}]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add files that stand outside of the folder, and a page for each public package."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name, text in reference_pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lead links, which hold in the repository, to the same files on the site, and name pages."""
    source = page.file.src_uri
    at = source if source in OUTSIDE or source.startswith("reference/") else f"docs/{source}"
    titles = dict(titles_in(config.nav))

    def led(found: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(posixpath.dirname(at), found[2]))
        place = place.removeprefix("docs/")
        text = titles.get(place, found[1]) if found[1].endswith(".md") else found[1]
        return f"[{text}]({posixpath.relpath(place, posixpath.dirname(source) or '.')}"

    return LINK.sub(led, markdown)


def titles_in(nav: Any) -> Iterator[tuple[str, str]]:
    """Give each page of the navigation with its title there."""
    for entry in nav:
        for title, inside in entry.items() if isinstance(entry, dict) else ():
            if isinstance(inside, str):
                yield inside, title
            else:
                yield from titles_in(inside)


def on_page_content(html: str, **_: Any) -> str:
    """Show roles of docstrings as code: they are for other writers of pages."""
    return re.sub(r":\w+:<code>~?(?:[\w.]*\.)?(\w+)</code>", r"<code>\1</code>", html)


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search, which the theme leaves without a name."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)


def reference_pages() -> dict[str, str]:
    """Write what mkdocstrings is asked for: every public name once, in ``nadi`` if it is there."""
    packages = public_packages()
    main = {id(getattr(nadi, name)): name for name in nadi.__all__}
    pages = {}
    for package_name, package in packages.items():
        homes = home_of_names(package)
        lines = [f"# {package_name}", "", summary(package), ""]
        values = {name: getattr(package, name) for name in package.__all__}
        # functions first: they are what a reader looks for
        for name, value in sorted(values.items(), key=lambda one: not inspect.isroutine(one[1])):
            if inspect.ismodule(value):
                if package is not nadi:  # packages have pages of their own
                    lines += [f"`{package_name}.{name}`: {summary(value)}", ""]
                continue
            place = f"{homes[name]}.{name}"
            if package is not nadi and id(value) in main:
                lines += [f"`{package_name}.{name}` is [`nadi.{main[id(value)]}`][{place}].", ""]
                continue
            lines += [
                f"::: {place}",
                "    options:",
                f"      heading: {package_name}.{name}",
                f"      toc_label: {name}",
                "",
            ]
        pages[package_name] = "\n".join(lines)
    return pages
