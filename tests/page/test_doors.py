"""The page is for this machine's own user: other names, other sites and other tokens stay outside."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from paging import Page

PATHS = ["/", "/about", "/style.css", "/page.js", "/icon.svg", "/examples/0", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", ["", "?token=", "?token=wrong", "?other=1"])
def test_nothing_is_given_without_the_token(page: Page, path: str, token: str) -> None:
    response, body = page.request("GET", path + token)
    assert response.status == 403
    assert b"the token is missing or wrong" in body


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""],
)
def test_a_foreign_host_is_refused_even_with_the_token(page: Page, host: str) -> None:
    named = host.format(port=page.port)
    for method, path in (("GET", "/"), ("POST", "/predict")):
        response, body = page.request(method, page.with_token(path), headers={"Host": named})
        assert response.status == 403
        assert b"under another name" in body


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"]
)
def test_another_site_is_refused_even_with_the_token(page: Page, origin: str) -> None:
    headers = {"Origin": origin.format(port=page.port)}
    response, body = page.request("POST", page.with_token("/predict"), b"x", headers)
    assert response.status == 403
    assert b"another web site" in body


def test_the_owner_comes_in_by_either_name_and_with_the_token_in_a_header(page: Page) -> None:
    for host in (f"127.0.0.1:{page.port}", f"localhost:{page.port}"):
        headers = {"Host": host, "Origin": f"http://{host}", "Authorization": f"Bearer {page.token}"}
        assert page.request("GET", "/about", headers=headers)[0].status == 200
    headers = {"Authorization": "Bearer wrong"}
    assert page.request("GET", page.with_token("/about"), headers=headers)[0].status == 403


def test_every_answer_forbids_what_the_page_does_not_need(page: Page) -> None:
    for path in (page.with_token("/"), "/", page.with_token("/nothing")):
        headers = page.request("GET", path)[0].headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Access-Control-Allow-Origin"] is None


def test_the_page_listens_on_this_machine_alone(page: Page) -> None:
    tables = [Path("/proc/net") / name for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A"]
    ours = [place for place in listening if place.endswith(f":{page.port:04X}")]
    assert ours == [f"0100007F:{page.port:04X}"]


def test_a_web_socket_is_not_spoken(page: Page) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x" * 22 + "=="}
    response, _ = page.request("GET", page.with_token("/about"), headers=headers)
    assert response.status != 101


def test_bytes_that_are_no_request_end_nothing(page: Page) -> None:
    with socket.create_connection(("127.0.0.1", page.port)) as connection:
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        connection.recv(1000)
    assert page.request("GET", page.with_token("/about"))[0].status == 200
