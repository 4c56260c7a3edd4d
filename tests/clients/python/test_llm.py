"""The `llm` command, with the server as one of its OpenAI-compatible models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from weather import ANSWER, ASKED, MODEL, PLACE

MODELS = ["over-chat", "over-responses"]
TOOL = """
def get_weather(location: str) -> str:
    "The weather somewhere."
    return f"sun over {location}"
"""


class Command:
    """`llm` with settings and logs of its own."""

    def __init__(self, home: Path, openai_url: str) -> None:
        self._environment = os.environ | {"LLM_USER_PATH": str(home)}
        entry = {"model_name": MODEL, "api_base": openai_url, "supports_tools": True, "supports_schema": True}
        entries = [
            {"model_id": "over-chat", **entry},
            {"model_id": "over-responses", "responses": True, **entry},
        ]
        (home / "extra-openai-models.yaml").write_text(yaml.safe_dump(entries), encoding="utf-8")

    def __call__(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "llm", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def logged(self) -> list[dict[str, Any]]:
        """What it noted of its requests, the oldest first."""
        return list(json.loads(self("logs", "list", "--json", "--count", "0")))


@pytest.fixture
def llm(tmp_path: Path, openai_url: str) -> Command:
    return Command(tmp_path, openai_url)


@pytest.mark.parametrize("flags", [[], ["--no-stream"]])
@pytest.mark.parametrize("model", MODELS)
def test_a_prompt_and_its_continuation(llm: Command, model: str, flags: list[str]) -> None:
    assert llm("prompt", "-m", model, *flags, "hello wörld 🌧") == "echo: hello wörld 🌧\n"
    assert llm("prompt", "--continue", *flags, "more") == "echo: more\n"
    first, second = llm.logged()
    assert first["conversation_id"] == second["conversation_id"]
    details = json.loads(second["token_details"])
    cached = details.get("prompt_tokens_details") or details["input_tokens_details"]
    held = first["input_tokens"] + first["output_tokens"] - 1
    assert held <= cached["cached_tokens"] < second["input_tokens"]


@pytest.mark.parametrize("flags", [[], ["--no-stream"]])
@pytest.mark.parametrize("model", MODELS)
def test_a_tool_loop(llm: Command, model: str, flags: list[str]) -> None:
    told = llm("prompt", "-m", model, "--functions", TOOL, *flags, ASKED)
    assert told.strip() == ANSWER
    first, second = llm.logged()
    (call,) = first["tool_calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", {"location": PLACE})
    (result,) = second["tool_results"]
    assert result["output"] == f"sun over {PLACE}"


@pytest.mark.parametrize("model", MODELS)
def test_a_schema(llm: Command, model: str) -> None:
    told = llm("prompt", "-m", model, "--schema", "why, answer int", 'EMIT:{"why": "so", "answer": 42}')
    assert json.loads(told) == {"why": "so", "answer": 42}
