"""``nadi view``: one page, to this machine only, until Ctrl-C."""

from __future__ import annotations

import http.client
import webbrowser
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from nadi.cli import main


def test_the_page_is_served_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><p>é 🚀")
    (tmp_path / "secret.txt").write_text("secret")
    seen = []

    def browser(address: str) -> bool:
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address, timeout=5) as answer:
            seen.append((answer.headers["Content-Type"], answer.read()))
        for path, host, code in (("secret.txt", "", 404), ("../page.html", "", 404),
                                 ("", "evil.example", 403)):  # fmt: skip
            asked = Request(address + path, headers={"Host": host} if host else {})
            with pytest.raises(HTTPError) as error:
                urlopen(asked, timeout=5)
            assert error.value.code == code
        connection = http.client.HTTPConnection(address[7:-1], timeout=5)
        connection.request("POST", "/", body=b"x")
        assert connection.getresponse().status == 501
        connection.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", browser)
    assert main(["view", str(page)]) == 0
    assert seen == [("text/html; charset=utf-8", page.read_bytes())]
    assert "until Ctrl-C" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"), [("traces", "is no page"), ("missing.html", "cannot be read")]
)
def test_what_is_no_page_is_said(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err
