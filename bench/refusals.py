"""How long a refusal takes in the server: from the request's body read to the refusal's last byte written.

    python bench/refusals.py

Bursts of 200 arrivals on 4 + 16 places (1 + 16 on a flat engine), simulated engine, each dialect. The server runs in
this process and is timed at its ASGI boundary; the clients run in another. Prints milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress

import httpx
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warmlane.cli.compose import build
from warmlane.cli.parts import ServerParts
from warmlane.cli.serve import run_server
from warmlane.config import Settings
from warmlane.engine.config import EngineKind

ARRIVALS = 200
BURSTS = 10
CAPACITY = 4
MAX_WAITING = 16
LONG = "SLOW:1000 " + "x" * 600
BODIES: dict[str, dict[str, object]] = {
    "/v1/responses": {"model": "simulated", "input": LONG},
    "/v1/messages": {"model": "simulated", "max_tokens": 1000, "messages": [{"role": "user", "content": LONG}]},
    "/v1/chat/completions": {"model": "simulated", "messages": [{"role": "user", "content": LONG}]},
}


class Timed:
    """An ASGI app that keeps the seconds of its refusals, by path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.took_s: dict[str, list[float]] = defaultdict(list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read_at, refused = 0.0, False

        async def timed_receive() -> Message:
            nonlocal read_at
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                read_at = time.perf_counter()
            return message

        async def timed_send(message: Message) -> None:
            nonlocal refused
            refused = refused or message.get("status") == 429
            await send(message)
            if refused and message["type"] == "http.response.body":
                self.took_s[scope["path"]].append(time.perf_counter() - read_at)

        await self._app(scope, timed_receive, timed_send)


async def one_burst(port: int, path: str, n_admitted: int) -> None:
    """Open every connection, write every request, and leave once all but the admitted have their refusal."""
    content = json.dumps(BODIES[path]).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(ARRIVALS)))
    for _, writer in opened:
        writer.write(request)
    held = {asyncio.create_task(reader.readline()) for reader, _ in opened}
    while len(held) > n_admitted:
        _, held = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
    for task in held:
        task.cancel()
    for _, writer in opened:
        writer.close()


async def clients(port: int, n_admitted: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for path in BODIES:
            for _ in range(BURSTS):
                await one_burst(port, path, n_admitted)
                while (await client.get("/ready")).json()["active"]:
                    await asyncio.sleep(0.01)


def serve(*, flat: bool) -> dict[str, list[float]]:
    settings = Settings(
        engine=EngineKind.SIMULATED, store="memory:", port=0, capacity=CAPACITY, max_waiting=MAX_WAITING, flat=flat
    )
    n_admitted = MAX_WAITING + (1 if flat else CAPACITY)
    timed: list[Timed] = []
    children: list[subprocess.Popen[bytes]] = []

    async def build_timed(settings: Settings) -> ServerParts:
        server = await build(settings)
        timed.append(Timed(server.app))
        server.app = timed[0]
        return server

    def start_clients(port: int) -> None:
        command = [sys.executable, __file__, "--clients", str(port), str(n_admitted)]
        children.append(subprocess.Popen(command))

    run_server(settings, build_timed, on_ready=start_clients)
    for child in children:
        child.wait()
    return timed[0].took_s


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    print(f"{'refusals, ms':<34}{'n':>6}{'p50':>8}{'p99':>8}{'max':>8}")
    for flat in (False, True):
        for path, took_s in serve(flat=flat).items():
            took = sorted(1e3 * s for s in took_s)
            p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
            name = f"{path} {'flat' if flat else 'paged'}"
            print(f"{name:<34}{len(took):6}{p50:8.2f}{p99:8.2f}{took[-1]:8.2f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--clients"]:
        try:
            asyncio.run(clients(int(sys.argv[2]), int(sys.argv[3])))
        finally:
            with suppress(ProcessLookupError):
                os.kill(os.getppid(), signal.SIGTERM)
    else:
        main()
