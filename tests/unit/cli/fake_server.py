"""A server process whose turns end when the test says so.

Usage: fake_server BEHAVIOUR. Prints a line for each thing that happens. `GET /ready` answers 200, while draining 503;
`GET /turn` streams `begun`, waits for `GET /finish`, and ends with `done`.
"""

from __future__ import annotations

import asyncio
import sys

from starlette.types import Receive, Scope, Send

from warmlane.cli.logs import configure_logging
from warmlane.cli.serve import run_server
from warmlane.config import LogLevel, Settings
from warmlane.errors import ConfigError


def say(*words: object) -> None:
    print(*words, flush=True)


class FakeParts:
    def __init__(self) -> None:
        self._draining = False
        self._running = 0
        self._finish = asyncio.Event()
        self._idle = asyncio.Event()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status = 503 if self._draining and scope["path"] == "/ready" else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        if scope["path"] == "/turn":
            self._running += 1
            await send({"type": "http.response.body", "body": b"begun\n", "more_body": True})
            await self._finish.wait()
            self._running -= 1
            self._idle.set()
        elif scope["path"] == "/finish":
            self._finish.set()
        await send({"type": "http.response.body", "body": b"done\n"})

    def reload(self) -> None:
        pass

    def begin_drain(self) -> None:
        self._draining = True
        say("draining")

    async def drained(self, grace_s: float) -> None:
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        say("closed")


async def build(settings: Settings) -> FakeParts:
    if settings.model == "broken":
        raise ConfigError("The model is broken.")
    if settings.model == "slow":
        say("loading")
        try:
            await asyncio.Event().wait()
        finally:
            say("unloaded")
    return FakeParts()


def main(model: str) -> int:
    configure_logging(LogLevel.INFO)
    settings = Settings(model=model, port=0, grace_s=60)
    try:
        return run_server(settings, build, on_ready=lambda port: say("ready", port))
    except ConfigError as error:
        say("refused", error.message)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
