"""Faults other servers have had, tried on a live one: reuse of prefixes. docs/cases.md tells which is which."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.dialects import PATHS, Dialogue, Told, body_of, check_envelope, told
from support.server import LiveServer, live_server

pytestmark = pytest.mark.live

DIALECTS = pytest.mark.parametrize("name", PATHS)
NOT_A_REASON = ("", "hit", "fresh", "no_key")
"""What is said where nothing was looked up, or was found: no reason for a prompt that was prefilled again."""

PREFILLED = re.compile(r'^warmlane_tokens_total\{kind="prefilled".*\} (\S+)$', re.MULTILINE)

TOOLS = "\n".join(
    f'{{"name": "tool_{n}", "description": "does thing {n} to what it is given", "input_schema": {{"type": "object"}}}}'
    for n in range(20)
)
PICKY_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}"
    "{% if 'unspeakable' in m.content %}{{ raise_exception('that is not said') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@pytest.fixture
def client(paged_server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=paged_server.base_url, timeout=60) as made:
        yield made


def ask(client: httpx.Client, name: str, dialogue: Dialogue, **extra: Any) -> Told:
    return told(name, client.post(PATHS[name], json=body_of(name, dialogue, **extra)))


def noise(seed: int, length: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghij klmnopqrst", k=length))


# the client's own noise in the head of the prompt


@pytest.mark.parametrize("shape", ["array", "string"])
@pytest.mark.parametrize("tools", [0, 20], ids=["alone", "with-tools"])
@pytest.mark.parametrize("rules", [noise(1, 3000), noise(2, 1000) + TOOLS], ids=["long", "with-tools-as-text"])
def test_a_rotating_line_costs_nothing_and_is_not_seen_by_the_model(
    client: httpx.Client, shape: str, rules: str, tools: int
) -> None:
    """Every turn of the same session reuses as much with the line as without it."""

    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    native = [{"name": f"tool_{n}", "description": noise(n, 60), "input_schema": schema} for n in range(tools)]

    def session(*, line: bool) -> list[tuple[int, int]]:
        said: list[tuple[str, str]] = []
        used = []
        for turn in range(5):
            said.append(("user", f"question {turn}"))
            head = f"x-anthropic-billing-header: cc_version=1; cch={0xA1B2C + turn * 7919:05x}"
            if shape == "array":
                texts = [head, rules] if line else [rules]
                system: object = [{"type": "text", "text": text} for text in texts]
            else:
                system = f"{head}\n{rules}" if line else rules
            salt = f"a1 {shape} {line} {len(rules)} {tools}"
            answer = ask(client, "messages", said, system=system, tools=native, cache_salt=salt)
            assert answer.text == f"echo: question {turn}"
            said.append(("assistant", answer.text))
            used.append((answer.prompt_tokens, answer.cached_tokens))
        return used

    with_line, without = session(line=True), session(line=False)
    assert with_line == without
    assert all(cached > len(rules) for _, cached in with_line[1:])


@DIALECTS
@pytest.mark.parametrize("role", ["system", "developer"])
def test_reminders_that_come_and_stay_in_mid_dialogue_leave_the_prefix_whole(
    client: httpx.Client, name: str, role: str
) -> None:
    said = [(role, "be brief " * 40)]
    before: Told | None = None
    for turn in range(6):
        said += [(role, f"<total_tokens>{90_000 - 977 * turn} left"), ("user", f"question {turn}")]
        answer = ask(client, name, said, cache_salt=f"a3 {name} {role}")
        if before is not None:
            assert before.held_tokens <= answer.cached_tokens <= before.held_tokens + 1
        said.append(("assistant", answer.text))
        before = answer


def test_reminders_in_a_chain_by_id_leave_the_prefix_whole(client: httpx.Client) -> None:
    before: Told | None = None
    for turn in range(6):
        said = [("developer", f"<total_tokens>{90_000 - 977 * turn} left"), ("user", f"question {turn}")]
        answer = ask(client, "responses", said, previous_response_id=before and before.id)
        if before is not None:
            assert before.held_tokens <= answer.cached_tokens <= before.held_tokens + 1
        before = answer


@pytest.fixture(scope="module")
def picky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server whose template takes a system message in front only, and chokes on a certain word."""
    template = Path(tmp_path_factory.mktemp("template")) / "picky.jinja"
    template.write_text(PICKY_TEMPLATE)
    with (
        live_server("--engine", "simulated", "--chat-template", str(template)) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as made,
    ):
        yield made


@DIALECTS
def test_a_late_system_message_is_shown_by_a_template_that_takes_none(picky: httpx.Client, name: str) -> None:
    said = [("user", "one"), ("assistant", "echo: one"), ("system", "late news"), ("user", "two")]
    assert ask(picky, name, said).text == "echo: late news\n\ntwo"


@DIALECTS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_template_that_raises_is_an_error_and_no_other_prompt(picky: httpx.Client, name: str, stream: bool) -> None:
    answer = picky.post(PATHS[name], json=body_of(name, [("user", "the unspeakable")], stream=stream))
    assert "that is not said" in check_envelope(name, answer.status_code, answer.headers, answer.content)
    assert picky.get("/ready").json()["permits"] == 0


# conversations side by side


@DIALECTS
def test_two_conversations_and_a_title_beside_them_stay_warm(client: httpx.Client, name: str) -> None:
    said = {who: [("system", noise(ord(who), 4096))] for who in "AB"}
    prompt, cached = 0, 0
    for turn in range(10):
        for who, dialogue in said.items():
            dialogue.append(("user", f"{who}{turn}"))
            answer = ask(client, name, dialogue, cache_salt=f"a12 {name}")
            dialogue.append(("assistant", answer.text))
            if turn:
                prompt, cached = prompt + answer.prompt_tokens, cached + answer.cached_tokens
            ask(client, name, [("system", "write a title"), ("user", f"about {who}")], cache_salt=f"a12 {name}")
    assert cached / prompt >= 0.95


@DIALECTS
def test_with_one_cache_for_all_each_turn_that_lost_it_says_why(flat_server: LiveServer, name: str) -> None:
    said = {who: [("system", noise(ord(who), 600))] for who in "AB"}
    keys: dict[str, dict[str, object]] = {who: {} for who in "AB"}
    if name != "messages":
        keys = {who: {"prompt_cache_key": f"conversation {who}"} for who in "AB"}
    with httpx.Client(base_url=flat_server.base_url, timeout=60) as client:
        for turn in range(4):
            for who, dialogue in said.items():
                dialogue.append(("user", f"{who}{turn}"))
                answer = ask(client, name, dialogue, cache_salt=f"a12 flat {name}", **keys[who])
                dialogue.append(("assistant", answer.text))
                if turn:
                    assert answer.reused < 0.5
                    assert answer.reason not in NOT_A_REASON


def test_in_sixty_calls_every_turn_that_reuses_little_says_why() -> None:
    """A coding agent's session: a rotating line, a title now and then, an old message edited, the history compacted,
    other rules, and a crowd of one-off requests. Its last prompt is named, as such clients do."""
    rng = random.Random(14)
    rules = noise(14, 600)
    said: list[tuple[str, str]] = []
    previous: str | None = None
    explained: dict[int, str] = {}
    with (
        live_server("--engine", "simulated", "--ctx", "8192", "--ram-cache", "0") as server,
        httpx.Client(base_url=server.base_url, timeout=60) as client,
    ):
        for call in range(60):
            if call == 15:
                said[0] = ("user", "edited: " + said[0][1])
            elif call == 30:
                said = [("user", "Summary of what was done so far: " + noise(call, 300))]
            elif call == 40:
                rules = "Now: " + rules
            elif call == 50:
                for one_off in range(8):
                    ask(client, "messages", [("user", noise(1000 + one_off, 4000))], max_tokens=4)
            said.append(("user", f"result {call}: {noise(100 + call, 60)}"))
            line = f"x-anthropic-billing-header: cch={rng.randrange(16**5):05x}"
            named: dict[str, Any] = {"diagnostics": {"previous_message_id": previous}}
            body = body_of("messages", said, system=f"{line}\n{rules}", max_tokens=24, **named)
            response = client.post("/v1/messages", json=body)
            answer = told("messages", response)
            if call and answer.reused < 0.5:
                diagnosis = response.json().get("diagnostics") or {}
                kind = diagnosis.get("cache_miss_reason", {}).get("type", "unavailable")
                explained[call] = answer.reason if kind == "unavailable" else kind
            if call % 10 == 0:
                ask(client, "messages", [("user", f"A title for call {call}?")], max_tokens=8)
            said.append(("assistant", answer.text))
            previous = answer.id
    assert not any(reason in NOT_A_REASON for reason in explained.values()), explained
    assert explained.keys() <= {15, 30, 40, 50}
    assert (explained[15], explained[40], explained[50]) == ("messages_changed", "system_changed", "evicted")


# what is told of it


@DIALECTS
def test_the_engine_prefills_what_was_not_cached(client: httpx.Client, name: str) -> None:
    def prefilled() -> int:
        page = client.get("/metrics").text
        return sum(int(float(n)) for n in PREFILLED.findall(page))

    said = [("system", noise(19, 1500))]
    for turn in range(3):
        said.append(("user", f"question {turn}"))
        before = prefilled()
        answer = ask(client, name, said, cache_salt=f"a19 {name}")
        while prefilled() == before:  # counted once the client has its answer
            pass
        assert prefilled() - before == answer.prompt_tokens - answer.cached_tokens
        said.append(("assistant", answer.text))
    assert answer.reused > 0.9


def test_what_changed_is_named_with_the_token_it_changed_at() -> None:
    flags = ("--engine", "simulated", "--model", "first", "--on-demand", "second")
    with live_server(*flags) as server, httpx.Client(base_url=server.base_url, timeout=60) as client:
        asked = [("user", "one"), ("assistant", "echo: one"), ("user", "two")]
        edited = [("user", "uno"), ("assistant", "echo: one"), ("user", "two")]

        def diagnosis(dialogue: Dialogue, *, model: str = "first", system: str = "be brief") -> dict[str, object]:
            first = ask(client, "messages", asked, model="first", system="be brief")
            named = {"previous_message_id": first.id}
            body = body_of("messages", dialogue, model=model, system=system, diagnostics=named)
            reply = client.post("/v1/messages", json=body).json()["diagnostics"]
            return {} if reply is None else reply["cache_miss_reason"]

        head = len("#system\nbe brief#\n#user\n")  # a control token is one token
        assert diagnosis([*asked, ("assistant", "echo: two"), ("user", "three")]) == {}
        model = diagnosis(asked, model="second")
        assert (model["type"], model.get("offset_tokens", 0)) == ("model_changed", 0)
        system = diagnosis(asked, system="be kind")
        assert (system["type"], system["offset_tokens"]) == ("system_changed", len("#system\nbe "))
        message = diagnosis(edited)
        assert (message["type"], message["offset_tokens"]) == ("messages_changed", head)
        assert "one" in str(message["before"])
        assert "uno" in str(message["now"])
