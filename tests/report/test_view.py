"""``nadi report --open``: one page, to this machine only, until Ctrl-C."""

from __future__ import annotations

import http.client
import webbrowser
from pathlib import Path

import pytest

from nadi.cli import main


def answer_of(address: str, method: str, path: str, host: str) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Content-Type"), answer.read()
    connection.close()
    return found


def test_the_page_is_served_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><p>é 🚀")
    (tmp_path / "secret.txt").write_text("secret")
    seen = []

    def browser(address: str) -> bool:
        assert address.startswith("http://127.0.0.1:")
        own, _, secret = address[7:].partition("/")
        assert len(secret) > 20
        for method, path, host in (
            ("GET", f"/{secret}", own), ("GET", "/secret.txt", own),
            ("GET", f"/{secret}../page.html", own), ("GET", "/", own),
            ("GET", f"/{secret}", "evil.example"), ("POST", f"/{secret}", own),
        ):  # fmt: skip
            seen.append(answer_of(own, method, path, host))
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", browser)
    assert main(["report", str(page), "--open"]) == 0
    assert [status for status, _, _ in seen] == [200, 404, 404, 404, 403, 501]
    assert seen[0][1:] == ("text/html; charset=utf-8", page.read_bytes())
    assert not any(page.read_bytes() in content or b"secret" in content
                   for _, _, content in seen[1:])  # fmt: skip
    assert "until Ctrl-C" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"), [("traces", "cannot be read"), ("missing.html", "cannot be read")]
)
def test_what_is_no_page_is_said(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / name), "--open"]) == 2
    assert said in capsys.readouterr().err
