"""The page's session with the server: opened with the first picture, and again when it was lost."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from privit.artifact import load_artifact
from privit.cost.progress import Progress, forecast
from privit.data.images import MODES, decode_image, resize_image
from privit.errors import ConnectionFailed
from privit.page.seen import Seen
from privit.serve.parties.client import Client, Cost, Prediction, connect
from privit.serve.parties.server import check_protocol
from privit.serve.parties.watching import Watcher
from privit.serve.wire.addresses import parse_address, part_of

Tell = Callable[[dict[str, Any]], None]
"""Called with each event of a question, in a thread of its own."""
WORDS_BYTES = 1024
"""What a question sends before the engine begins: query and bye."""
SETUP = "Opening a session: both sides prepare the program and exchange keys. This is done once."


class Asker:
    """Asks one server about one picture after another; `ask` may be called from any thread.

    A question is told as events: `picture` (what the model reads), `says` (what it waits for), `progress`,
    and at the end `answer`. Errors are raised.
    """

    def __init__(
        self,
        model: Path,
        server: str,
        protocol: str = "cheetah",
        certs: Path | None = None,
        helper: str | None = None,
        state: Path | None = None,
    ):
        self.protocol = check_protocol(protocol, helper)
        parse_address(server)
        self.server, self._certs, self._helper, self._state = server, certs, helper, state
        self._model = part_of(model, "client")
        self.artifact = load_artifact(self._model)
        self.ahead = forecast(self.artifact, protocol)
        self._one_at_a_time = threading.Lock()
        self._client: Client | None = None
        self._tell: Tell = _nothing
        self._seen = Seen()

    def about(self) -> dict[str, Any]:
        """What a visitor should know before asking; nothing here is secret."""
        public, ahead = self.artifact.public, self.ahead.query
        return {
            "server": self.server,
            "certified": self._certs is not None,
            "helper": self._helper,
            "protocol": self.protocol.name,
            "private": self.protocol.private,
            "trust": self.protocol.trust,
            "data": str(public.notes.get("data", "")),
            "classes": list(public.class_names),
            "size": public.preprocessing.size,
            "expected_bytes": None if ahead is None else round(ahead.sent_bytes),
            "expected_rounds": None if ahead is None else round(ahead.rounds),
            "expected_seconds": None if ahead is None else ahead.seconds,
        }

    def ask(self, data: bytes, tell: Tell) -> dict[str, Any]:
        """The answer to one picture file, as plain data; `tell` hears of what happens until then."""
        image = decode_image(data, "the file")
        tell({"event": "picture", "png": self._as_read(image)})
        if self._one_at_a_time.locked():
            tell({"event": "says", "text": "Another picture is being asked about: this one is next."})
        with self._one_at_a_time:
            self._tell, self._seen = tell, Seen()
            try:
                prediction = self._predict(image)
                return self._answer(prediction)
            finally:
                self._tell = _nothing

    def close(self) -> None:
        """Ends the session, and with it a question that is being asked."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _predict(self, image: Image.Image) -> Prediction:
        kept = self._client is not None
        try:
            return self._connected().predict(image)
        except ConnectionFailed:
            self.close()
            # A server ends sessions that ask nothing for long, and may have been started anew.
            if not kept or self._seen.sent_bytes > WORDS_BYTES:
                raise
        try:
            return self._connected().predict(image)
        except ConnectionFailed:
            self.close()
            raise

    def _connected(self) -> Client:
        if self._client is None:
            self._tell({"event": "says", "text": f"Looking for the server at {self.server}."})
            watcher = Watcher(self._moved, lambda piece: self._seen.feed(piece))
            self._client = connect(
                self._model,
                self.server,
                self.protocol.name,
                self._certs,
                self._helper,
                state=self._state,
                tell=lambda text: self._tell({"event": "says", "text": f"{text[:1].upper()}{text[1:]}."}),
                watcher=watcher,
            )
            # The set-up knows nothing of the picture: what is shown is what was sent from here on.
            self._seen = Seen()
        self._tell({"event": "says", "text": "Computing on the hidden picture."})
        return self._client

    def _moved(self, work: str, cost: Cost) -> None:
        expected = self.ahead.setup if work == "setup" else self.ahead.query
        progress = Progress(cost.sent_bytes, cost.rounds, cost.seconds, expected)
        if work == "setup":
            self._tell({"event": "says", "text": SETUP})
        self._tell({"event": "progress", "work": work, **progress.to_json(), "seen": self._shown()})

    def _shown(self) -> dict[str, Any]:
        seen = self._seen
        sample = base64.b64encode(seen.sample()).decode()
        return {"sent_bytes": seen.sent_bytes, "pieces": seen.pieces, "sample": sample}

    def _answer(self, prediction: Prediction) -> dict[str, Any]:
        client = self._client
        return {
            "event": "answer",
            "class_name": prediction.class_name,
            "probabilities": dict(
                zip(self.artifact.public.class_names, prediction.probabilities, strict=True)
            ),
            # Whether the picture stayed inside what the model was made for, where its program can tell.
            "inside": prediction.inside,
            "sent_bytes": prediction.sent_bytes,
            "rounds": prediction.rounds,
            "wire_bytes": prediction.wire_bytes,
            "seconds": prediction.seconds,
            "setup_bytes": None if client is None else client.setup.sent_bytes,
            "protocol": self.protocol.name,
            "private": self.protocol.private,
            "seen": self._shown(),
        }

    def _as_read(self, image: Image.Image) -> str:
        """The picture at the model's own size, as a data URL: it is shown, and never written down."""
        preprocessing = self.artifact.public.preprocessing
        pixels = resize_image(image, preprocessing)
        shown = Image.fromarray(pixels[:, :, 0] if preprocessing.channels == 1 else pixels)
        assert shown.mode == MODES[preprocessing.channels]
        buffer = io.BytesIO()
        shown.save(buffer, "PNG")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _nothing(event: dict[str, Any]) -> None:
    """Nobody listens between two questions."""
