"""Engines that have compiled the program before a client asks for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from privit.errors import WorkError
from privit.serve.engine.process import EngineProcess

PREPARE_SECONDS = 1800.0


class EnginePool:
    """Keeps one prepared worker in reserve, so that a session starts with its key exchange."""

    def __init__(self, folder: Path, protocol: str, role: str, log_file: Path, engines: int = 1):
        self._folder, self._protocol, self._role, self._log_file = folder, protocol, role, log_file
        self._engines = engines
        self._spare: asyncio.Task[EngineProcess] | None = None
        self._returned: list[EngineProcess] = []
        self._closed = False
        self._programs: dict[int, bytes] = {}
        self.description: dict[str, str] = {}

    async def fill(self) -> dict[str, str]:
        """Prepares the first worker; the description that it and all later ones must have."""
        self.refill()
        assert self._spare is not None
        self.description = (await asyncio.shield(self._spare)).description
        return self.description

    def refill(self) -> None:
        """Begins to prepare a worker if none is in reserve."""
        if self._spare is None and not self._returned:
            self._spare = asyncio.ensure_future(self._start())

    async def take(self, images: int = 1) -> EngineProcess:
        """A prepared worker, from the reserve if there is one; the caller stops it or gives it back.

        Workers are prepared for one image; for another number the first one compiles again.
        """
        engine = await self._take()
        try:
            await asyncio.wait_for(engine.compile(images, self._programs.get(images)), PREPARE_SECONDS)
            await self._keep_program(engine)
        except BaseException:
            await engine.stop()
            raise
        return engine

    async def _take(self) -> EngineProcess:
        while self._returned:
            engine = self._returned.pop()
            if engine.alive:
                return engine
            await engine.stop()
        spare, self._spare = self._spare, None
        if spare is not None:
            try:
                engine = await asyncio.shield(spare)
            except asyncio.CancelledError:
                self._return(spare)
                raise
            except WorkError:
                engine = await self._start()
            if engine.alive:
                return engine
            await engine.stop()
        engine = await self._start()
        if engine.description != self.description:
            await engine.stop()
            raise WorkError("the artifact was changed while it was being served", "start the server again")
        return engine

    async def give_back(self, engine: EngineProcess) -> None:
        """Takes a worker back that was never opened; it is the next one's.

        A new worker is only started where none is left: there are never more than sessions, and one.
        """
        if self._closed or not engine.alive:
            await engine.stop()
        else:
            engine.move()
            self._returned.append(engine)

    async def close(self) -> None:
        """Ends the workers in reserve."""
        self._closed = True
        for engine in self._returned:
            await engine.stop()
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.cancel()
            (found,) = await asyncio.gather(spare, return_exceptions=True)
            if isinstance(found, EngineProcess):
                await found.stop()

    def _return(self, spare: asyncio.Task[EngineProcess]) -> None:
        """Puts a worker back that the client who asked for it did not wait for."""
        if self._spare is None:
            self._spare = spare
        else:
            spare.add_done_callback(_stop_when_done)

    async def _start(self) -> EngineProcess:
        given = (self._folder, self._protocol, self._role, self._log_file, self._engines)
        start = EngineProcess.start(*given, compiled=self._programs.get(1))
        try:
            engine = await asyncio.wait_for(start, PREPARE_SECONDS)
        except TimeoutError:
            raise WorkError(f"no program after {PREPARE_SECONDS:g} seconds of compiling") from None
        try:
            await self._keep_program(engine)
        except BaseException:
            await engine.stop()
            raise
        return engine

    async def _keep_program(self, engine: EngineProcess) -> None:
        """Keeps what a worker compiled, for those after it."""
        if engine.images not in self._programs:
            self._programs[engine.images] = await engine.program()


def _stop_when_done(task: asyncio.Task[EngineProcess]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().kill()
