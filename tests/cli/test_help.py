"""Help: every command under a title, in one line; the reference says what each option does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.command_page import command_reference
from nadi.cli import _FORMER, main
from nadi.cli.app import make_app


def test_the_list_of_commands_fits_one_screen(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 100
    first, second = lines.index("Start here"), lines.index("More on what bounds a step")
    assert second - first - 1 == 12
    listed = {line.split()[0] for line in lines[first:] if line.startswith("  ")}
    whole: Any = get_command(make_app(""))
    assert listed == set(whole.commands)


def test_the_reference_lists_commands_and_defaults() -> None:
    page = command_reference()
    assert "| [run](#nadi-run) | Find what bounds a step" in page
    assert "| `--steps` N | How many steps are recorded. Default: 3; with --fake 1. |" in page
    assert "Default: `--sync`. |" in page
    assert "| `--key` FILE | The owner's key: at least 16 random bytes. Required. |" in page
    assert "'nadi[solver]'" in page  # without the escapes of markup


@pytest.mark.parametrize("command", ["run", "info", "waits", "simulate", "fold"])
def test_an_empty_path_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    system = ["--system", "dgx-h100"] if command == "simulate" else []
    assert main([command, "", *system]) == 2
    assert capsys.readouterr().err == "nadi: '': is no path; name a file or a folder\n"


def test_a_command_alone_is_described_as_among_all() -> None:
    whole: Any = get_command(make_app())
    for name, command in whole.commands.items():
        alone: Any = get_command(make_app(name))
        assert list(alone.commands) == list(whole.commands)
        found = alone.commands[name]
        assert [one.opts for one in found.params] == [one.opts for one in command.params]
        assert list(getattr(found, "commands", ())) == list(getattr(command, "commands", ()))
    listed: Any = get_command(make_app(""))
    assert not any(command.params for command in listed.commands.values())
    for attribute in ("help", "rich_help_panel"):
        assert [getattr(one, attribute) for one in listed.commands.values()] == [
            getattr(one, attribute) for one in whole.commands.values()
        ]


@pytest.mark.parametrize("former", _FORMER)
def test_a_former_spelling_says_the_new_one(former: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = _FORMER[former]
    assert main([former, "--help"]) == 0
    printed = capfd.readouterr()
    assert printed.err == f"nadi: nadi {former} is now nadi {words}; the former spelling will end\n"
    assert main([*words.split(), "--help"]) == 0
    assert capfd.readouterr() == (printed.out, "")


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("validate {demo}/device_0.json.gz", "info {demo}/device_0.json.gz --check"),
        ("reorder {demo} --step 2 --apply some", "what-if {demo} --reorder --step 2 --apply some"),
        ("cxl --system dgx-h100 --trace {plan} --memory 0",
         "memory place {plan} --system dgx-h100 --memory 0"),
        ("cxl --trace={plan} --system dgx-h100 --place heads=cxl --json",
         "memory place {plan} --system dgx-h100 --place heads=cxl --json"),
        ("cxl --model gpt3-14b", "memory plan --model gpt3-14b"),
        ("unfold {plan} -o {demo}", "fold {plan} --undo -o {demo}"),
        ("record-fake -o x -- none.py", "record --fake -o x -- none.py"),
        ("view {demo}/none.html", "report {demo}/none.html --open"),
    ],
)  # fmt: skip
def test_a_former_spelling_runs_the_same(
    former: str, now: str, demo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('model = "gpt3-125m"\ntp = 2\nsequence = 64\nglobal_batch = 2\n')
    found = []
    for line in (former, now):
        code = main(line.format(demo=demo_folder, plan=plan).split())
        out, err = capfd.readouterr()
        found.append((code, out, [one for one in err.splitlines() if " is now " not in one]))
    assert found[0] == found[1]
    assert found[0][1] or found[0][2]


def test_options_of_one_form_are_refused_with_the_other(
    demo_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for line, named in (
        ("what-if {demo} no-gaps --reorder", "--change no-gaps"),
        ("what-if {demo} --top 3", "--top 3"),
        ("info {demo} --check --json", "--json"),
        ("fold {demo} --undo -o x --to-ranks 2", "--to-ranks 2"),
        ("fold {demo} --undo", "--undo"),
        ("record --fake --no-sync -- x.py", "--no-sync"),
        ("record --world 4 -- x.py", "--world 4"),
        ("report page.html --open --step 3", "--step"),
    ):
        assert main(line.format(demo=demo_folder).split()) == 2
        err = capfd.readouterr().err
        assert err.startswith(f"nadi: {named}: "), err
        assert err.count("\n") == 1
