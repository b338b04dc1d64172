"""The command line: one small file per command, and one place where errors are caught."""

from __future__ import annotations

import sys

from nadi.errors import NadiError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; give the exit code: 0, or 2 after one line that says what is wrong."""
    from nadi.cli.app import app

    try:
        app(args=arguments, prog_name="nadi", standalone_mode=False)
    except NadiError as error:
        _complain(str(error))
        return 2
    except Exception as error:
        code = getattr(error, "exit_code", None)  # click's own: usage, --help, broken pipe
        if code is None:
            raise
        show = getattr(error, "format_message", None)
        if show is not None:
            _complain(f"{show()}; nadi --help shows the commands")
        return int(code)
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    return 0


def _complain(message: str) -> None:
    sys.stderr.write(f"nadi: {message}\n")
