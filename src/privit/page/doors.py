"""Who may speak with the page: this machine's own browser and programs, who know the token."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Neither picture nor answer may end up in a browser's cache.
    "Cache-Control": "no-store",
}


class Doors:
    """Lets a request in if it was sent to this machine, from this page or a program, with the token.

    Another web site can make a browser send requests here: it cannot know the token, and a browser says
    whence they come (Origin). A site whose own name points at this machine (DNS rebinding) is known by Host.
    """

    def __init__(self, app: ASGIApp, token: str, port: int):
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError("the page speaks HTTP only")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self.refusal(Headers(scope=scope), scope["query_string"])
        answer = self._app if refused is None else PlainTextResponse(refused + "\n", 403)
        await answer(scope, receive, send_guarded)

    def refusal(self, headers: Headers, query: bytes) -> str | None:
        """Why a request is not let in, if it is not."""
        if headers.get("host", "").lower() not in self._hosts:
            return "refused: this page is for this machine, and was asked for under another name"
        if headers.get("origin", next(iter(self._origins))) not in self._origins:
            return "refused: another web site asked for this"
        word, _, given = headers.get("authorization", "").partition(" ")
        if word.lower() != "bearer":
            given = parse_qs(query.decode("latin-1")).get("token", [""])[0]
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return "refused: the token is missing or wrong; use the whole address that privit page printed"
        return None
