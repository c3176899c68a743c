"""Workers in reserve: the first compiles, those after it take what it compiled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from privit.errors import WorkError
from privit.serve.engine.pool import EnginePool
from privit.serve.engine.process import EngineProcess


def test_a_later_worker_takes_the_program_that_the_first_one_compiled(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bytes | None] = []
    start = EngineProcess.start

    async def noted(*arguments, compiled=None, **named):  # type: ignore[no-untyped-def]
        given.append(compiled)
        return await start(*arguments, compiled=compiled, **named)

    monkeypatch.setattr(EngineProcess, "start", noted)

    async def run() -> None:
        pool = EnginePool(tiny_folder / "server", "cheetah", "server", tmp_path / "log")
        described = await pool.fill()
        first = await pool.take(2)
        pool.refill()
        second = await pool.take(2)
        assert first.description == second.description != described
        for engine in (first, second):
            await engine.stop()
        await pool.close()

    asyncio.run(run())
    assert given[0] is None
    assert given[1] is not None


def test_what_is_no_program_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    start = EngineProcess.start(tiny_folder / "server", "cheetah", "server", tmp_path / "log", compiled=b"{}")
    with pytest.raises(WorkError, match="the engine failed"):
        asyncio.run(start)
