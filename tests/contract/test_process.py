"""The server as a process: how it goes up, how it goes down, what it says when it cannot."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from support import strict
from support.server import environment, live_server

pytestmark = pytest.mark.live


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warmlane", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False)


def test_the_curl_line_it_prints_works() -> None:
    with live_server("--engine", "simulated") as server:
        printed = next(line for line in server.output if line.strip().startswith("curl "))
        answer = subprocess.run([*shlex.split(printed), "-sS"], capture_output=True, text=True, timeout=30, check=True)
    assert '"status":"completed"' in answer.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_turns_finish_and_exits_0(number: signal.Signals) -> None:
    with live_server("--engine", "simulated") as server, httpx.Client(base_url=server.base_url, timeout=60) as client:
        body = {"model": "simulated", "input": "SLOW:20 " + "x" * 40, "stream": True}
        with client.stream("POST", "/v1/responses", json=body) as response:
            lines = response.iter_lines()
            next(line for line in lines if "output_text.delta" in line)
            server.process.send_signal(number)
            refused = wait_for_refusal(server.base_url)
            rest = "\n".join(lines)
        assert "response.completed" in rest
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert server.process.wait(30) == 0


def wait_for_refusal(base_url: str) -> httpx.Response:
    """What a new turn is told once the drain has begun."""
    while httpx.get(f"{base_url}/ready").status_code == 200:
        pass
    return httpx.post(f"{base_url}/v1/responses", json={"model": "simulated", "input": "x"})


def test_turns_past_the_grace_period_end_in_the_dialects_error() -> None:
    with live_server("--engine", "simulated", "--grace-s", "0.2") as server:
        body = {"model": "simulated", "input": "SLOW:50 " + "x" * 2000, "stream": True}
        with httpx.stream("POST", f"{server.base_url}/v1/responses", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(line for line in lines if "output_text.delta" in line)
            server.process.send_signal(signal.SIGTERM)
            kinds = [line[7:] for line in lines if line.startswith("event: ")]
        assert kinds[-2:] == ["error", "response.failed"]
        assert server.process.wait(30) == 0


def test_a_second_signal_ends_at_once() -> None:
    with live_server("--engine", "simulated") as server:
        body = {"model": "simulated", "input": "SLOW:1000 " + "x" * 2000, "stream": True}
        started, ended = threading.Event(), []

        def ask() -> None:
            try:
                with httpx.stream("POST", f"{server.base_url}/v1/responses", json=body, timeout=60) as response:
                    for line in response.iter_lines():
                        if "output_text.delta" in line:
                            started.set()
            except httpx.TransportError as error:
                ended.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert started.wait(30)
        server.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{server.base_url}/ready").status_code == 200:
            pass
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 128 + signal.SIGTERM
        asking.join(10)


def test_a_restart_keeps_what_was_stored(tmp_path: Path) -> None:
    store = tmp_path / "responses.db"
    with live_server("--engine", "simulated", store=store) as server:
        first = httpx.post(f"{server.base_url}/v1/responses", json={"model": "simulated", "input": "hello"}).json()
        server.process.kill()
        server.process.wait()
    with live_server("--engine", "simulated", store=store) as server:
        body = {"model": "simulated", "input": "more", "previous_response_id": first["id"]}
        second = strict.response(httpx.post(f"{server.base_url}/v1/responses", json=body).json())
    assert second.output_text == "echo: more"


def test_a_crashed_worker_ends_its_turn_and_the_next_is_served() -> None:
    with live_server("--engine", "simulated") as server, httpx.Client(base_url=server.base_url, timeout=60) as client:
        crashed = client.post("/v1/chat/completions", json=chat("CRASH:3"))
        assert crashed.status_code == 503
        assert "error" in crashed.json()
        while client.get("/ready").status_code != 200:
            pass
        assert client.post("/v1/chat/completions", json=chat("hello")).status_code == 200
        with client.stream("POST", "/v1/chat/completions", json=chat("CRASH:3") | {"stream": True}) as response:
            assert '"error"' in response.read().decode()


def chat(text: str) -> dict[str, object]:
    return {"model": "simulated", "messages": [{"role": "user", "content": text}]}


def test_the_worker_does_not_outlive_a_killed_server() -> None:
    with live_server("--engine", "simulated") as server:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        workers = [int(pid) for pid in children]
        assert workers
        server.process.kill()
        server.process.wait()
        for pid in workers:
            wait_gone(pid)


def wait_gone(pid: int) -> None:
    """Returns once the process has ended; a zombie has."""
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return


def test_api_keys_guard_every_dialect() -> None:
    keys = ("--api-key", "a=key-of-a", "--api-key", "b=key-of-b")
    with live_server("--engine", "simulated", *keys) as server, httpx.Client(base_url=server.base_url) as client:
        none = client.post("/v1/responses", json={"model": "simulated", "input": "x"})
        wrong = client.post("/v1/messages", json={}, headers={"x-api-key": "nope"})
        assert (none.status_code, none.json()["error"]["code"]) == (401, "invalid_api_key")
        assert (wrong.status_code, wrong.json()["error"]["type"]) == (401, "authentication_error")
        key_a, key_b = ({"authorization": f"Bearer key-of-{t}"} for t in "ab")
        mine = client.post("/v1/responses", json={"model": "simulated", "input": "x"}, headers=key_a)
        assert mine.status_code == 200
        chained = {"model": "simulated", "input": "y", "previous_response_id": mine.json()["id"]}
        theirs = client.post("/v1/responses", json=chained, headers=key_b)
        unknown = client.post("/v1/responses", json=chained | {"previous_response_id": "resp_none"}, headers=key_b)
        assert theirs.status_code == unknown.status_code == 400
        assert theirs.text == unknown.text.replace("resp_none", mine.json()["id"])
        assert client.post("/v1/responses", json=chained, headers=key_a).headers["x-session-cache"] == "hit"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--port", "99999"], "--port"),
        (["serve", "--capacity", "0"], "--capacity"),
        (["serve", "--nonsense"], "--nonsense"),
        (["serve", "--engine", "vllm"], "--engine"),
        (["serve", "--model", "no-such-model"], "no-such-model"),
        (["serve", "--model", "/no/such/file.gguf"], "/no/such/file.gguf"),
        (["serve", "--host", "0.0.0.0", "--engine", "simulated"], "--api-key"),
        (["serve", "--api-key", "no-separator"], "TENANT=KEY"),
        (["serve", "--engine", "simulated", "--store", "mysql://x/y"], "--store"),
        (["serve", "--engine", "simulated", "--disk-cache", "kv", "--ram-cache", "0"], "--ram-cache"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_2(arguments: list[str], says: str) -> None:
    done = run_cli(*arguments)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()
    assert len(last) == 1
    assert says in last[0]


def test_a_store_of_a_newer_version_is_one_line_and_exit_2(tmp_path: Path) -> None:
    path = tmp_path / "warmlane.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
    done = run_cli("serve", "--engine", "simulated", "--store", str(path), "--port", "0")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "newer Warmlane (schema 9999" in done.stderr.strip().splitlines()[-1]


def test_a_postgresql_that_is_not_there_is_one_line_and_exit_2() -> None:
    store = "postgresql://user:hush@127.0.0.1:1/none"
    done = run_cli("serve", "--engine", "simulated", "--store", store, "--port", "0")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be opened" in done.stderr.strip().splitlines()[-1]
    assert "hush" not in done.stderr


def test_a_disk_cache_in_use_is_one_line_that_names_whose_and_exit_2(tmp_path: Path) -> None:
    flags = ("--engine", "simulated", "--disk-cache", str(tmp_path))
    with live_server(*flags) as server:
        done = run_cli("serve", *flags, "--store", "memory:", "--port", "0")
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert f"in use by process {server.process.pid}. " in done.stderr.strip().splitlines()[-1]
        assert server.process.poll() is None
        server.process.kill()
        server.process.wait()
    with live_server(*flags):
        pass


def test_a_port_in_use_is_one_line_and_exit_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_cli("serve", "--engine", "simulated", "--store", "memory:", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64])
def test_a_corrupt_model_is_one_line_and_exit_2(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    done = run_cli("serve", "--model", str(path), "--store", "memory:", "--port", "0")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert str(path) in done.stderr.strip().splitlines()[-1]


def test_wrong_environment_and_file_are_named(tmp_path: Path) -> None:
    config = tmp_path / "warmlane.toml"
    config.write_text('port = "many"\n')
    from_file = run_cli("serve", "--config", str(config))
    assert (from_file.returncode, "port" in from_file.stderr) == (2, True)
    command = [sys.executable, "-m", "warmlane", "serve"]
    variables = environment() | {"WARMLANE_PROT": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables, check=False)
    assert done.returncode == 2
    assert "WARMLANE_PROT" in done.stderr
    assert os.environ.get("WARMLANE_PROT") is None


def test_sessions_are_listed_and_ended() -> None:
    with live_server("--engine", "simulated") as server, httpx.Client(base_url=server.base_url) as client:
        first = client.post("/v1/responses", json={"model": "simulated", "input": "hello"}).json()
        (listed,) = client.get("/v1/sessions").json()["data"]
        assert listed["id"] == first["id"]
        assert listed["tokens"] >= first["usage"]["total_tokens"] - 1
        assert client.delete(f"/v1/sessions/{first['id']}").json()["deleted"] is True
        assert client.get("/v1/sessions").json()["data"] == []
        chained = {"model": "simulated", "input": "more", "previous_response_id": first["id"]}
        after = client.post("/v1/responses", json=chained)
        assert after.headers["x-cache-miss-reason"] == "deleted"
        assert after.json()["output"][0]["content"][0]["text"] == "echo: more"


def test_a_model_on_demand_is_loaded_by_its_first_request() -> None:
    flags = ("--engine", "simulated", "--model", "first", "--on-demand", "second")
    with live_server(*flags) as server, httpx.Client(base_url=server.base_url, timeout=60) as client:
        assert [m["id"] for m in client.get("/v1/models").json()["data"]] == ["first", "second"]
        for model in ("second", "first", "second"):
            answer = client.post("/v1/responses", json={"model": model, "input": "hello"}).json()
            assert (answer["model"], answer["status"]) == (model, "completed")
        assert client.post("/v1/responses", json={"model": "third", "input": "x"}).status_code == 404


def test_a_turn_that_kills_its_worker_twice_is_refused() -> None:
    with live_server("--engine", "simulated") as server, httpx.Client(base_url=server.base_url, timeout=60) as client:
        for status in (503, 503, 400):
            while client.get("/ready").status_code != 200:
                pass
            assert client.post("/v1/chat/completions", json=chat("CRASH:1")).status_code == status
        assert client.post("/v1/chat/completions", json=chat("hello")).status_code == 200


def test_a_hangup_reads_the_key_file_again(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a=key-of-a\n")
    with live_server("--engine", "simulated", "--api-keys", str(keys)) as server:

        def status(key: str) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.get(f"{server.base_url}/v1/models", headers=headers).status_code

        assert (status("key-of-a"), status("key-of-b")) == (200, 401)
        keys.write_text("b=key-of-b\n")
        server.process.send_signal(signal.SIGHUP)
        while status("key-of-b") != 200:
            pass
        assert status("key-of-a") == 401
        keys.write_text("not a key\n")
        server.process.send_signal(signal.SIGHUP)
        while not any("stay as they were" in line for line in server.output):
            pass
        assert status("key-of-b") == 200
