"""The command line: the list of commands, and one place where errors are caught."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

# as little as can be is imported before Ctrl-C is known what to do with
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

    from nadi.errors import Parameter

__all__ = ["main", "run"]

_LONGEST_LINE = 1_000
_PIPE_CLOSED = 128 + 13  # as a shell reports SIGPIPE
_RARELY = 1_000_000, 20, 20
_OPTIONS = {
    "sweep_over": "--sweep",
    "sequence": "--seq",
    "sequence_parallel": "--sp",
    "bandwidths": "--bandwidth",
    "capacities": "--capacity",
    "tiers": "--tier",
    "host_us": "--host-time",
    "launch_us": "--launch-time",
    "ttft_ms": "--ttft",
    "tpot_ms": "--tpot",
    "e2e_ms": "--e2e",
}  # of parameters that have another name there
# for one release: the commands of version 0.3 whose names changed, and what they are called now
_FORMER = {
    "collect": "record",
    "compare": "similarity",
    "cxl": "memory plan",
    "graph": "draw graph",
    "offload": "memory offload",
    "record-fake": "record --fake",
    "reorder": "what-if --reorder",
    "replay": "rerun",
    "timeline": "draw timeline",
    "unfold": "fold --undo",
    "validate": "info --check",
    "view": "report --open",
}
_WATCHERS = frozenset({"coverage", "memray", "scalene", "viztracer"})  # which may use other means


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 after a one-line error message.

    Some commands return 1 for what they found; 130 is an interruption, 141 a pipe that was closed.
    """
    from nadi.errors import NadiError

    if signal.getsignal(signal.SIGINT) is _end_at_once:  # now there is somebody who catches it
        from nadi.cli.interruptions import interrupt, watch_for_interruptions

        watch_for_interruptions()
        signal.signal(signal.SIGINT, interrupt)
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # whatever names a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    given = _respelled(sys.argv[1:] if arguments is None else arguments)
    try:
        command = _command(_named(given))
        code = command(args=given or ["--help"], prog_name="nadi", standalone_mode=False)
        sys.stdout.flush()
    except NadiError as error:
        _complain(error.message(partial(_option, given)))
        return 2
    except OSError as error:
        _complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
        return 2
    except MemoryError as error:
        reason = str(error) or "this needs more than the machine has"
        _complain(f"memory: {reason}; ask for less, or use a machine that has more")
        return 2
    except (KeyboardInterrupt, EOFError):
        code = 130
    except SystemExit:  # typer's, when nobody reads the output any more: as of a signal
        return _PIPE_CLOSED
    except Exception as error:
        show = getattr(error, "format_message", None)  # click's own errors of usage have it
        if show:
            _complain(f"{show().rstrip('.')}; {_help_for(error)}")
            return int(getattr(error, "exit_code", 2))
        if not isinstance(error.__cause__, KeyboardInterrupt):  # wrapped while a class was made
            raise
        code = 130
    if code == 130:
        _complain("interrupted")
    return code if isinstance(code, int) else 0


@cache
def _command(named: str) -> Any:
    """Return the list of commands, in which the named one has its parameters."""
    from typer.main import get_command

    from nadi.cli.app import make_app

    return get_command(make_app(named))


def _named(given: list[str]) -> str:
    """Return the command that arguments name; an empty text if they name none."""
    return next((one for one in given if not one.startswith("-")), "")


def _respelled(given: list[str]) -> list[str]:
    """Give arguments with the new words for a former command, and say so in one line."""
    former = _named(given)
    if former not in _FORMER:
        return given
    at, words = given.index(former), _FORMER[former].split()
    before, rest = given[:at], given[at + 1 :]
    traced = [place for place, one in enumerate(rest) if one.partition("=")[0] == "--trace"]
    if former == "cxl" and traced:  # with it, it was a command of its own
        words = ["memory", "place"]
        joined = rest[traced[0]].partition("=")[2:] if "=" in rest[traced[0]] else ()
        rest[traced[0] : traced[0] + 1] = joined
    _complain(f"nadi {former} is now nadi {' '.join(words)}; the former spelling will end")
    return [*before, *words, *rest]


def run() -> NoReturn:
    """Run the command line as a process of its own, which ends with the exit code.

    When everything is written and closed, nothing is taken down piece by piece: the system frees
    all of it at once, which makes a short run a fifth shorter. Not if a profiler or a measurement
    of coverage is on, which write what they found at the end.
    """
    # what is imported stays, and to look through it again and again is 4 % of a short run
    gc.set_threshold(*_RARELY)
    # numpy's library for matrices, which Nadi has none of, starts threads that wait busily
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in the background
        signal.signal(signal.SIGINT, _end_at_once)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or never there
            stream.flush()
    if _is_watched():
        sys.exit(code)
    os._exit(code)


def _end_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """End while modules are still imported: nothing is begun that would have to be undone."""
    os.write(2, b"nadi: interrupted\n")
    os._exit(130)


def _is_watched() -> bool:
    """Tell whether a debugger, a profiler or a measurement of coverage looks on."""
    if sys.gettrace() or sys.getprofile() or sys.flags.inspect:
        return True
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12
    if monitoring and any(monitoring.get_tool(tool) for tool in range(6)):
        return True
    return not _WATCHERS.isdisjoint(sys.modules)


def _help_for(error: Exception) -> str:
    """Name the help page that belongs to one of click's own errors."""
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return "nadi --help lists the commands"
    return f"{context.command_path} --help lists its arguments and options"


def _option(given: list[str], parameter: Parameter) -> str:
    """Spell a parameter that an error names as the option that stands for it.

    - ``given``: The arguments of the command line, of which the first name the command.
    """
    name, value = parameter
    option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if name == "force" and not _has_option(given, option):
        return f"nadi link {option}"
    return option if value is None or value is True else f"{option} {value}"


def _has_option(given: list[str], option: str) -> bool:
    """Tell whether the command that the first arguments name has an option."""
    command = _command(_named(given))
    for name in given:
        inner = getattr(command, "commands", {}).get(name)
        if inner is None:
            break
        command = inner
    return any(option in one.opts for one in command.params)


def _complain(message: str) -> None:
    """Print one line, whatever names and values the message holds."""
    from nadi.units import printable

    sys.stderr.write(f"nadi: {printable(message, _LONGEST_LINE)}\n")
