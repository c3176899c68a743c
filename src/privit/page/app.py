"""The page's addresses: the page itself, what it is about, its examples, and POST /predict."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from privit.errors import OutsideRanges, PrivitError, RequestError
from privit.page.asker import Asker
from privit.page.doors import Doors
from privit.page.examples import media_type
from privit.serve.wire.addresses import raised_at
from privit.serve.wire.frames import RemoteError

UPLOAD_BYTES = 32 << 20
"""The largest file that is taken: a camera's pictures are smaller."""
QUESTIONS = 4
"""How many may be asked and wait at a time."""
LINES = "application/x-ndjson"
STATIC = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

log = logging.getLogger("privit.page")


def make_app(asker: Asker, token: str, port: int, pictures: Mapping[str, bytes]) -> Doors:
    """The application, behind its doors."""
    page = _Page(asker, token, pictures)
    routes = [
        Route("/", page.index),
        Route("/about", page.about),
        Route("/examples/{number:int}", page.example),
        Route("/predict", page.predict, methods=["POST"]),
        *(Route(f"/{name}", page.static) for name in STATIC),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(asker.close)

    return Doors(Starlette(routes=routes, lifespan=lifespan), token, port)


class _Page:
    def __init__(self, asker: Asker, token: str, pictures: Mapping[str, bytes]):
        self._asker, self._token, self._pictures = asker, token, pictures
        self._files = resources.files("privit.page") / "static"
        self._questions = 0

    async def index(self, _: Request) -> Response:
        # The token is made of letters, digits, - and _: it needs no escaping.
        text = (self._files / "index.html").read_text("utf-8").replace("{{token}}", self._token)
        return Response(text, media_type="text/html")

    async def static(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response((self._files / name).read_bytes(), media_type=STATIC[name])

    async def about(self, _: Request) -> Response:
        told = {"examples": list(self._pictures), "upload_bytes": UPLOAD_BYTES}
        return JSONResponse(self._asker.about() | told)

    async def example(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(self._pictures):
            return PlainTextResponse("there is no such example\n", 404)
        name = list(self._pictures)[number]
        return Response(self._pictures[name], media_type=media_type(name))

    async def predict(self, request: Request) -> Response:
        try:
            data = await _upload(request)
            if self._questions >= QUESTIONS:
                raise PageBusy(f"{QUESTIONS} pictures are being asked about already", "try again in a while")
        except PrivitError as error:
            return JSONResponse(told(error), status_of(error))
        if LINES in request.headers.get("accept", ""):
            return StreamingResponse(self._lines(data), media_type=LINES)
        async for event in self._events(data):
            if event["event"] in ("answer", "error"):
                return JSONResponse(event, event.pop("status", 200))
        raise AssertionError("a question ended without an answer")

    async def _lines(self, data: bytes) -> AsyncIterator[bytes]:
        async for event in self._events(data):
            yield json.dumps(event).encode() + b"\n"

    async def _events(self, data: bytes) -> AsyncIterator[dict[str, Any]]:
        """What happens until the answer, and the answer or what went wrong instead."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any]]()

        def tell(event: dict[str, Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the page was closed meanwhile
                loop.call_soon_threadsafe(events.put_nowait, event)

        def ask() -> None:
            try:
                tell(self._asker.ask(data, tell))
            except PrivitError as error:
                tell(told(error) | {"status": status_of(error)})
            except Exception as error:
                # Its message may quote values; the log gets the places only.
                log.error("%s", raised_at(error))
                words = f"something unexpected went wrong ({type(error).__name__})"
                tell(
                    told(PrivitError(words, "privit page has written to its terminal where"))
                    | {"status": 500}
                )
            finally:
                tell({"event": "end"})

        self._questions += 1
        # A daemon: a server that never answers must not keep the page from ending.
        threading.Thread(target=ask, name="privit-page-question", daemon=True).start()
        try:
            while (event := await events.get())["event"] != "end":
                yield event
        finally:
            self._questions -= 1


class PageBusy(PrivitError):
    """More pictures at a time than the page takes."""


class TooLarge(RequestError):
    """A file that is larger than any picture should be."""


def told(error: PrivitError) -> dict[str, Any]:
    """An error as an event."""
    return {"event": "error", "error": error.message, "hint": error.hint}


def status_of(error: PrivitError) -> int:
    """The HTTP status that says the same as an error to a program."""
    if isinstance(error, PageBusy) or (isinstance(error, RemoteError) and error.code in ("busy", "shutdown")):
        return 503
    if isinstance(error, TooLarge):
        return 413
    if isinstance(error, OutsideRanges):
        return 422
    return 400 if type(error) is RequestError else 502


async def _upload(request: Request) -> bytes:
    """The request's body, in memory alone; refused as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "0")
    parts, size = [], int(declared) if declared.isdigit() and int(declared) > UPLOAD_BYTES else 0
    try:
        async for part in request.stream() if size == 0 else _none():
            parts.append(part)
            size += len(part)
            if size > UPLOAD_BYTES:
                break
    except ClientDisconnect:
        raise RequestError("the upload ended too early", "send the picture again") from None
    if size > UPLOAD_BYTES:
        raise TooLarge(
            f"the file is larger than {UPLOAD_BYTES >> 20} MB, which is the most that is taken",
            "make the picture smaller first",
        )
    if size == 0:
        raise RequestError("no picture was sent", "send the bytes of an image file as the request's body")
    return b"".join(parts)


async def _none() -> AsyncIterator[bytes]:
    return
    yield b""
