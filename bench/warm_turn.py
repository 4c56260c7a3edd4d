"""Time to first token of a conversation's first and second turn, on each dialect.

    python bench/warm_turn.py                      # starts a server of its own on the embedded model
    python bench/warm_turn.py --base http://127.0.0.1:8080 --model NAME

Each conversation opens with a prompt of about a thousand tokens that no other shares. TTFT counts from sending the
request to the first piece of text. Prints the median of each turn, their ratio and the cached tokens of turn 2.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

WORDS = (
    "river harbour lantern copper meadow winter engine paper garden mountain signal violet market bridge candle forest "
    "silver window ladder ocean kettle marble orchard compass feather granite pepper tunnel velvet walnut"
).split()


@dataclass(frozen=True)
class Reply:
    """One streamed answer: seconds to its first text, the text, cached prompt tokens, and the response's id."""

    ttft_s: float
    text: str
    cached_tokens: int
    prompt_tokens: int
    id: str


def opening(rng: random.Random, n_words: int) -> str:
    return "Remember this list: " + " ".join(rng.choice(WORDS) for _ in range(n_words)) + ". What is it about?"


def events(client: httpx.Client, path: str, body: dict[str, object]) -> Iterator[tuple[float, dict]]:
    start = time.perf_counter()
    with client.stream("POST", path, json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield time.perf_counter() - start, json.loads(line[6:])


def responses(client: httpx.Client, model: str, said: list[str], previous: Reply | None) -> Reply:
    body: dict[str, object] = {
        "model": model,
        "input": said[-1],
        "stream": True,
        "max_output_tokens": 32,
        "temperature": 0,
    }
    if previous is not None:
        body["previous_response_id"] = previous.id
    ttft, text = 0.0, ""
    for at, event in events(client, "/v1/responses", body):
        if event["type"] == "response.output_text.delta":
            ttft, text = ttft or at, text + event["delta"]
        elif event["type"] in ("response.completed", "response.incomplete"):
            usage = event["response"]["usage"]
            cached = usage["input_tokens_details"]["cached_tokens"]
            return Reply(ttft, text, cached, usage["input_tokens"], event["response"]["id"])
    raise RuntimeError("the stream had no terminal event")


def alternating(said: list[str]) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]


def messages(client: httpx.Client, model: str, said: list[str], previous: Reply | None) -> Reply:
    body = {"model": model, "messages": alternating(said), "stream": True, "max_tokens": 32, "temperature": 0}
    ttft, text, cached, prompt, id_ = 0.0, "", 0, 0, ""
    for at, event in events(client, "/v1/messages", body):
        if event["type"] == "message_start":
            usage, id_ = event["message"]["usage"], event["message"]["id"]
            cached = usage["cache_read_input_tokens"]
            prompt = usage["input_tokens"] + cached + (usage["cache_creation_input_tokens"] or 0)
        elif event["type"] == "content_block_delta":
            ttft, text = ttft or at, text + event["delta"]["text"]
    return Reply(ttft, text, cached, prompt, id_)


def chat(client: httpx.Client, model: str, said: list[str], previous: Reply | None) -> Reply:
    body = {
        "model": model,
        "messages": alternating(said),
        "stream": True,
        "max_tokens": 32,
        "temperature": 0,
        "stream_options": {"include_usage": True},
    }
    ttft, text, cached, prompt, id_ = 0.0, "", 0, 0, ""
    for at, event in events(client, "/v1/chat/completions", body):
        id_ = event["id"]
        if event.get("usage"):
            prompt = event["usage"]["prompt_tokens"]
            cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
        for choice in event["choices"]:
            if choice["delta"].get("content"):
                ttft, text = ttft or at, text + choice["delta"]["content"]
    return Reply(ttft, text, cached, prompt, id_)


@contextmanager
def own_server(model: str) -> Iterator[str]:
    """A server on a free port with a store of its own, stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "warmlane", "serve", "--model", model, "--port", str(port)]
        command += ["--store", os.path.join(scratch, "bench.db")]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            base = f"http://127.0.0.1:{port}"
            wait_ready(base, server)
            yield base
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def wait_ready(base: str, server: subprocess.Popen[bytes], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}")
        try:
            if httpx.get(f"{base}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError("the server did not become ready")


def measure(base: str, model: str, rounds: int, n_words: int, seed: int) -> None:
    rng = random.Random(seed)
    print(f"{'dialect':10} {'prompt':>7} {'turn 1':>9} {'turn 2':>9} {'ratio':>7}  cached in turn 2")
    for name, ask in (("responses", responses), ("messages", messages), ("chat", chat)):
        pairs: list[tuple[Reply, Reply]] = []
        for _ in range(rounds):
            with httpx.Client(base_url=base, timeout=600) as client:
                said = [opening(rng, n_words)]
                first = ask(client, model, said, None)
                said += [first.text, "Say that in other words."]
                pairs.append((first, ask(client, model, said, first)))
        one = statistics.median(first.ttft_s for first, _ in pairs)
        two = statistics.median(second.ttft_s for _, second in pairs)
        ratio = statistics.median(first.ttft_s / second.ttft_s for first, second in pairs)
        first, second = pairs[-1]
        print(
            f"{name:10} {first.prompt_tokens:7} {one:8.3f}s {two:8.3f}s {ratio:6.1f}x  "
            f"{second.cached_tokens} of {second.prompt_tokens}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a running server; without it one is started")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--words", type=int, default=950, help="words in the opening prompt")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the prompts; printed")
    args = parser.parse_args()
    print(f"seed {args.seed}, {args.rounds} conversations a dialect")
    if args.base:
        measure(args.base, args.model, args.rounds, args.words, args.seed)
        return
    with own_server(args.model) as base:
        measure(base, args.model, args.rounds, args.words, args.seed)


if __name__ == "__main__":
    main()
