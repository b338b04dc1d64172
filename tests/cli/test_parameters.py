"""Values of the command line are what typer makes of them; plain ones without pydantic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from nadi.cli import main
from nadi.results.terminal.typer_internals import QuickCommand, QuickGroup


def _app(seen: list[Any], **classes: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, cls=classes.get("group"))

    @app.callback()
    def _main(flag: Annotated[bool, typer.Option("--flag")] = False) -> None:
        seen.append(flag)

    @app.command("do", cls=classes.get("command"))
    def _do(
        paths: Annotated[list[Path] | None, typer.Argument()] = None,
        text: Annotated[str, typer.Option("--text")] = "",
        place: Annotated[Path | None, typer.Option("--place")] = None,
        there: Annotated[Path | None, typer.Option("--there", exists=True)] = None,
        count: Annotated[int, typer.Option("--count", min=1, max=20)] = 3,
        any_count: Annotated[int, typer.Option("--any-count")] = -3,
        share: Annotated[float, typer.Option("--share")] = 0.5,
        more: Annotated[list[str] | None, typer.Option("--more")] = None,
        force: Annotated[bool, typer.Option("--force")] = False,
    ) -> None:
        seen.append((paths, text, place, there, count, any_count, share, more, force))

    return app


def _outcome(arguments: list[str], **classes: Any) -> Any:
    seen: list[Any] = []
    try:
        _app(seen, **classes)(args=arguments, standalone_mode=False)
    except Exception as error:  # of any kind that typer has
        return type(error), getattr(error, "format_message", lambda: "")()
    return seen


def test_help_is_folded_by_the_terminal_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Typer keeps the line ends of a help's source, and folds what is longer once more."""
    assert main(["simulate", "--help"]) == 0
    lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
    begin = next(k for k, line in enumerate(lines) if line.startswith("The job is a Chakra .et"))
    *folded, _ = lines[begin : lines.index("", begin)]
    assert min(map(len, folded)) > max(map(len, folded)) - 20
    assert "nadi simulate TRACES --system dgx-h100" in lines


@pytest.mark.parametrize("arguments", [
    ["do"], ["--flag", "do"], ["do", "a", "b/../c", ""], ["do", "--text", "x", "--text", "y"],
    ["do", "--text", ""], ["do", "--place", "/"], ["do", "--place", "s3://a//b"],
    ["do", "--there", "/"], ["do", "--there", "/not/there"], ["do", "--count", "1"],
    ["do", "--count", "20"], ["do", "--count", "0"], ["do", "--count", "21"],
    ["do", "--count", "x"], ["do", "--count", " 7"], ["do", "--count", "007"],
    ["do", "--count", "1_0"], ["do", "--count", "7.0"], ["do", "--count", "\u0667"],
    ["do", "--any-count", "-12"], ["do", "--any-count", "99999999999999999999"],
    ["do", "--share", "1e-3"], ["do", "--share", "x"], ["do", "--more", "a", "--more", ""],
    ["do", "--force"], ["do", "--unknown"], ["do", "--count"], ["nothing"],
])  # fmt: skip
def test_values_and_errors_are_those_of_typer(arguments: list[str]) -> None:
    expected = _outcome(arguments)
    assert expected
    assert _outcome(arguments, command=QuickCommand, group=QuickGroup) == expected


def test_a_file_that_may_not_be_read_is_refused_as_typer_does(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("")
    secret.chmod(0)
    arguments = ["do", "--place", str(secret), str(secret)]
    expected = _outcome(arguments)
    assert _outcome(arguments, command=QuickCommand, group=QuickGroup) == expected


def test_plain_values_need_no_pydantic() -> None:
    program = (
        "import sys\n"
        "from nadi.cli import main\n"
        "code = main(['simulate', 'no such job', '--queues', '2', '--network', 'a',"
        " '--system-config', 'b'])\n"
        "assert code == 2, code\n"
        "assert not any(name.startswith('pydantic') for name in sys.modules)\n"
        "assert 'nadi.graph.event_graph' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "a: cannot be read" in done.stderr
