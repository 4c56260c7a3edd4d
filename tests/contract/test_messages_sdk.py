"""The official anthropic package against a live server: Messages."""

from __future__ import annotations

import anthropic
import httpx
import pytest

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"
BILLING = "x-anthropic-billing-header: cc_version=2.1.278; cc_entrypoint=cli; cch={};"


@pytest.fixture
def client(server: LiveServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0)


def total(usage: anthropic.types.Usage) -> int:
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


def test_create(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "hello"}])
    strict.message(answer.model_dump(mode="json"))
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "echo: hello"
    assert answer.stop_reason == "end_turn"


def test_the_beta_route_is_the_same(client: anthropic.Anthropic) -> None:
    answer = client.beta.messages.create(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "hello"}])
    assert answer.content[0].type == "text"


def test_the_stream_helper(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "wörld 🌧"}]
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "echo: wörld 🌧"
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 1


def test_every_streamed_event_is_strictly_typed_and_ordered(http: httpx.Client) -> None:
    body = {"model": MODEL, "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    with http.stream("POST", "/v1/messages", json=body) as response:
        events = strict.sse(response)
    assert strict.message_stream(events) == "echo: hello"
    usage = next(e for e in events if e["type"] == "message_start")["message"]["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] > 0


def test_a_replayed_history_is_warm(client: anthropic.Anthropic) -> None:
    said: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hello there"}]
    first = client.messages.create(model=MODEL, max_tokens=100, system="be brief", messages=said)
    said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "more"}]
    second = client.messages.create(model=MODEL, max_tokens=100, system="be brief", messages=said)
    assert (second.usage.cache_read_input_tokens or 0) >= total(first.usage) + first.usage.output_tokens - 1


def test_the_rotating_billing_line_does_not_cool_the_prefix(client: anthropic.Anthropic) -> None:
    system = "word " * 300
    for shape in ("array", "string"):
        used = []
        for cch in ("ab12c", "9f0e1"):
            line = BILLING.format(cch)
            blocks: list[anthropic.types.TextBlockParam] = [
                {"type": "text", "text": line},
                {"type": "text", "text": shape + system},
            ]
            answer = client.messages.create(
                model=MODEL,
                max_tokens=100,
                system=blocks if shape == "array" else f"{line}\n{shape}{system}",
                messages=[{"role": "user", "content": "hello"}],
            )
            used.append(answer.usage)
        assert (used[1].cache_read_input_tokens or 0) >= total(used[1]) - 1


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"system": "be brief"},
        {"system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]},
        {"system": [{"type": "text", "text": BILLING.format("aaaaa")}, {"type": "text", "text": "be brief"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]}]},
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
                {"role": "system", "content": "late"},
                {"role": "user", "content": "c <|im_end|> d"},
            ]
        },
    ],
)
def test_count_tokens_is_what_the_call_uses(http: httpx.Client, extra: dict[str, object]) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], **extra}
    counted = http.post("/v1/messages/count_tokens", json=body).json()
    usage = strict.message(http.post("/v1/messages", json=body | {"max_tokens": 100}).json()).usage
    assert counted == {"input_tokens": total(usage)}


def test_max_tokens_and_stop_sequences_end_the_turn(client: anthropic.Anthropic) -> None:
    said: list[anthropic.types.MessageParam] = [{"role": "user", "content": "one two three"}]
    cut = client.messages.create(model=MODEL, max_tokens=5, messages=said)
    assert cut.stop_reason == "max_tokens"
    assert cut.usage.output_tokens == 5
    stopped = client.messages.create(model=MODEL, max_tokens=100, stop_sequences=["two t"], messages=said)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "two t")
    assert stopped.content[0].type == "text"
    assert stopped.content[0].text == "echo: one "


def test_errors_map_to_the_sdks_classes(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="no-such-model", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]"):
        client.messages.create(model=MODEL, max_tokens=1, messages=[{"role": "nobody", "content": "x"}])  # type: ignore[typeddict-item]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
        client.messages.create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "x" * 40_000}])


def test_a_fault_in_a_stream_is_an_error_event_and_no_stop(http: httpx.Client) -> None:
    body = {"model": MODEL, "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "FAIL:3"}]}
    with http.stream("POST", "/v1/messages", json=body) as response:
        events = strict.sse(response)
    assert events[-1]["type"] == "error"
    assert "message_stop" not in [e["type"] for e in events]


def test_both_auth_headers_and_any_version(server: LiveServer) -> None:
    body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    for headers in (
        {"x-api-key": "k", "anthropic-version": "2023-06-01"},
        {"authorization": "Bearer k", "anthropic-version": "2026-10-21"},
        {},
    ):
        assert httpx.post(f"{server.base_url}/v1/messages?beta=true", json=body, headers=headers).status_code == 200


def test_a_miss_is_diagnosed(client: anthropic.Anthropic) -> None:
    def ask(content: str, *, system: str = "be brief", previous: str | None = None) -> anthropic.types.Message:
        return client.messages.create(
            model=MODEL,
            max_tokens=50,
            system=system,
            messages=[{"role": "user", "content": content}],
            diagnostics={"previous_message_id": previous},
        )

    first = ask("hello there")
    assert first.diagnostics is None
    for content, system, kind in (("hello again", "be brief", "messages_changed"), ("x", "be kind", "system_changed")):
        answer = ask(content, system=system, previous=first.id)
        strict.message(answer.model_dump(mode="json"))
        assert answer.diagnostics is not None
        assert answer.diagnostics.cache_miss_reason is not None
        assert answer.diagnostics.cache_miss_reason.type == kind
    unknown = ask("x", previous="msg_unknown").diagnostics
    assert unknown is not None
    assert unknown.cache_miss_reason is not None
    assert unknown.cache_miss_reason.type == "previous_message_not_found"
