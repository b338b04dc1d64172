"""``nadi view``: a report in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from nadi.results.terminal.options import output_console

__all__ = ["HELP", "command"]

HELP = """Show a page of nadi report in the browser, until Ctrl-C.

The page is served to this machine only, at an address that others cannot guess. For a
page on another machine, forward the port that is printed: ssh -L PORT:127.0.0.1:PORT HOST.

[bold]Examples[/]

  nadi view report.html
"""
_MOMENT = 0.2  # seconds


def command(
    page: Annotated[
        str, typer.Argument(metavar="FILE", help="A page of nadi report.", show_default=False)
    ],
) -> None:
    """Serve the page, and open the browser."""
    import webbrowser
    from threading import Thread

    from nadi.errors import UsageError
    from nadi.files.files import locate, read_file
    from nadi.results.page.page import page_server

    place = locate(page)
    if place.suffix not in (".html", ".htm"):
        raise UsageError(
            page, "is no page in HTML", f"write one first: nadi report {page} -o report.html"
        )
    server, address = page_server(bytes(read_file(place).content))
    serving = Thread(target=server.serve_forever, daemon=True)
    serving.start()
    console = output_console()
    console.print(f"{address} until Ctrl-C", markup=False)
    try:
        webbrowser.open(address)
        while serving.is_alive():  # a signal that another thread gets does not end a wait
            serving.join(_MOMENT)
    except KeyboardInterrupt:
        console.print("ended")
    finally:
        server.shutdown()
        server.server_close()
