"""Errors name parameters to Python, and options to people at the command line."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest
from typer.main import get_command

import nadi
from nadi.cli import main
from nadi.cli.app import make_app
from nadi.errors import InputError, PairError, Parameter, UsageError
from nadi.graph.event_graph import CycleError
from tests.conftest import PairWriter

SOURCE = Path(nadi.__file__).parent
# of values that no command takes
ONLY_IN_PYTHON = {
    "changes", "comm_type", "digraph", "given", "group", "job", "name", "parts", "paths", "policy",
    "root", "seconds", "window_size",
}  # fmt: skip


def test_a_parameter_in_any_part_is_spelled_as_asked() -> None:
    error = InputError(
        Parameter("step", 9), ["is no ", Parameter("to")], ["give ", Parameter("force", True)]
    )
    assert str(error) == "step=9: is no to; give force=True"
    assert (error.where, error.what, error.remedy) == ("step=9", "is no to", "give force=True")
    assert error.message(lambda p: p.name.upper()) == "STEP: is no TO; give FORCE"


@pytest.mark.parametrize(
    "error", [UsageError(Parameter("step", "9"), "is not there"), CycleError(["a", "b"], [1, 2])]
)
def test_an_error_comes_back_from_another_process_as_it_was(error: nadi.NadiError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_in_python_a_message_names_the_parameter(demo_folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.nadi"
    there.touch()
    file = next(demo_folder.glob("device_*"))
    for call, message in [
        (lambda: nadi.run(demo_folder, step=9), r"^step='9': the trace has no such step; give"),
        (lambda: nadi.convert(file, there), r"; give another name, or overwrite=True$"),
        (lambda: nadi.link_files(file, output=there), r"give another name, or overwrite=True$"),
        (lambda: nadi.convert(file, tmp_path / "a.b"), r"; use one of .*, or to$"),
        (lambda: nadi.convert(file, there, to="b"), r"^to='b': unknown format; there are"),
        (lambda: nadi.convert(file, tmp_path / "a.et", schema="9"), r"^schema='9': unknown schema"),
        (lambda: nadi.bottlenecks.ask(demo_folder, changes="no-gaps", sweep_over="1,2"),
         r"^sweep_over: no change contains the placeholder"),
        (lambda: nadi.bottlenecks.ask(demo_folder, changes="scale x {}", sweep_over="1:0:0"),
         r"^sweep_over='1:0:0': is not a range"),
    ]:  # fmt: skip
        with pytest.raises(nadi.NadiError, match=message):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "DEMO", "--step", "9"], "nadi: --step 9: the trace has no such step; give all or"),
        (["convert", "FILE", "THERE"], "exists already; give another name, or --overwrite\n"),
        (["link", "FILE", "-o", "THERE"], "exists already; give another name, or --overwrite\n"),
        (["convert", "FILE", "a.b"], ", or --to\n"),
        (["convert", "FILE", "THERE", "--to", "b"], "nadi: --to b: unknown format;"),
        (["convert", "FILE", "a.et", "--schema", "9"], "nadi: --schema 9: unknown schema"),
        (["what-if", "DEMO", "no-gaps", "--sweep", "1,2"], "nadi: --sweep: no change contains"),
        (["what-if", "DEMO", "scale x {}", "--sweep", "1:0:0"], "nadi: --sweep 1:0:0: is not a"),
        (["critical-path", "FILE", "--rules", "hta", "--rank", "9"], "nadi: --rank 9: is not the"),
        (["critical-path", "FILE", "--rules", "hta", "--annotation", "no such"],
         "nadi: --annotation no such: no event name contains"),
    ],
)  # fmt: skip
def test_at_the_command_line_a_message_names_the_option(
    arguments: list[str], message: str, demo_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "there.nadi"
    there.touch()
    places = {"DEMO": demo_folder, "FILE": demo_folder / "device_0.json.gz", "THERE": there}
    assert main([str(places.get(one, one)) for one in arguments]) == 2
    assert message in capsys.readouterr().err


def test_force_of_a_pair_is_that_of_the_command_or_else_of_nadi_link(
    pair: PairWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.op("op", 0, 5)
    pair.events[-1]["name"] = "other"
    host, device = pair.write()
    with pytest.raises(PairError, match=r"link anyway: force=True$"):
        nadi.run(host, device)
    assert main(["what-if", str(host.parent)]) == 2  # which has no --force
    assert capsys.readouterr().err.endswith("link anyway: nadi link --force\n")
    for arguments in (["run"], ["link", "-o", str(host.parent / "out")]):
        assert main([*arguments, str(host.parent)]) == 2
        assert capsys.readouterr().err.endswith("link anyway: --force\n")
        assert main([*arguments, str(host.parent), "--force"]) == 0
        capsys.readouterr()


def named_parameters() -> set[str]:
    """Find the parameters that errors name, anywhere outside the command line."""
    found = {"sweep_over"}  # handed over as a text
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Parameter":
                found |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return found


def test_a_parameter_that_an_error_names_is_an_option_of_a_command() -> None:
    from nadi.cli import _option

    commands = list(get_command(make_app()).commands.values())  # type: ignore[attr-defined]
    for command in commands:  # with those in it
        commands += getattr(command, "commands", {}).values()
    options = {one for command in commands for param in command.params for one in param.opts}
    named = named_parameters()
    assert {"step", "to", "annotation"} <= named
    for name in named - ONLY_IN_PYTHON:
        assert _option(["link"], Parameter(name)) in options, name
    assert named >= ONLY_IN_PYTHON


def test_no_module_beside_the_command_line_writes_an_option_into_an_error() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] == "cli" or path.stem.endswith("command"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
                texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                wrong += [f"{path.name}: {t}" for t in texts if isinstance(t, str) and "--" in t]
    assert wrong == []
