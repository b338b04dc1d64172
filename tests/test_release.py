"""What a release consists of agrees: versions, dates, what is needed, and the files of a wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from nadi.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = (ROOT / "conda" / "recipe.yaml").read_text()
# names at conda-forge that differ from those at PyPI
AT_CONDA = {"isal": "python-isal", "lazy-loader": "lazy_loader",
            "universal-pathlib": "universal_pathlib"}  # fmt: skip


def test_version_and_date_are_the_same_everywhere() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", changes, re.MULTILINE)
    assert newest is not None
    assert newest.groups() == (__version__, cited["date-released"])
    assert cited["version"] == __version__
    assert f'version: "{__version__}"' in RECIPE
    assert f"nadi-{__version__}-" in (ROOT / "docs" / "install.md").read_text()


def test_the_recipe_of_conda_needs_what_the_package_needs() -> None:
    run = re.findall(r"^    - (.*)$", RECIPE.split("  run:\n")[1].split("\n\n")[0], re.MULTILINE)
    pairs = [re.split(r"(?=>=)", one) for one in PROJECT["dependencies"]]
    needed = {f"{AT_CONDA.get(name, name)} {least}" for name, least in pairs}
    assert set(run) == needed | {f"python {PROJECT['requires-python']}"}
    assert f"- nadi = {PROJECT['scripts']['nadi']}\n" in RECIPE


def test_workflows_try_each_python_that_is_supported() -> None:
    for name in ("ci", "wheels"):
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
        assert 'python: ["3.11", "3.12", "3.13", "3.14"]' in text


def test_actions_of_workflows_are_pinned_to_commits() -> None:
    used = [
        (path.name, line.strip())
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for line in path.read_text().splitlines() if "uses:" in line
    ]  # fmt: skip
    assert used
    pinned = re.compile(r"- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [(name, line) for name, line in used if not pinned.fullmatch(line)] == []


def test_a_release_has_the_parts_and_provenance_that_security_promises() -> None:
    text = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()
    (parts,) = re.findall(r"cyclonedx-py environment --output-file dist/(\S+)", text)
    assert f"`{parts}`" in (ROOT / "SECURITY.md").read_text()
    assert re.search(r"attest-build-provenance@.*\n +with:\n +subject-path: dist/\*\n", text)


def test_a_wheel_has_all_files_of_the_package(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"nadi-{__version__}-py3-none-any.whl"
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("nadi/")}
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, text=True,
                            stdout=subprocess.PIPE).stdout.split()  # fmt: skip
    assert inside == {name.removeprefix("src/") for name in listed}
