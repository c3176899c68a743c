"""What a server sees of a query: rows of bytes taken evenly from all that was sent to it."""

from __future__ import annotations

ROW_BYTES = 192
"""A row of 64 points, of three bytes each."""
ROWS = 64


class Seen:
    """A sample of a stream whose length nobody knows before its end; it holds at most 2 x ROWS rows.

    Row i begins at byte i x stride of the stream. Where there are too many, every second one goes and the
    stride doubles.
    """

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.pieces = 0
        self._rows: list[bytes] = []
        self._stride = ROW_BYTES
        self._open = bytearray()
        self._filling = False

    def feed(self, piece: bytes) -> None:
        """The next bytes of the stream, as they went to the server."""
        start, self.sent_bytes = self.sent_bytes, self.sent_bytes + len(piece)
        self.pieces += 1
        at = 0
        while at < len(piece):
            if not self._filling:
                at = len(self._rows) * self._stride - start
                if at >= len(piece):
                    return
                self._filling = True
            part = piece[at : at + ROW_BYTES - len(self._open)]
            self._open += part
            at += len(part)
            if len(self._open) == ROW_BYTES:
                self._keep()

    def sample(self) -> bytes:
        """At most ROWS rows, evenly spread over what has been sent so far."""
        rows = tuple(self._rows)
        count = min(ROWS, len(rows))
        return b"".join(rows[i * len(rows) // count] for i in range(count))

    def _keep(self) -> None:
        rows = [*self._rows, bytes(self._open)]
        self._open.clear()
        self._filling = False
        if len(rows) == 2 * ROWS:
            rows = rows[::2]
            self._stride *= 2
        # Put there whole, because another thread reads it.
        self._rows = rows
