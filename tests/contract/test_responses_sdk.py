"""The official openai package against a live server: Responses."""

from __future__ import annotations

import httpx
import openai
import pytest

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


def test_create(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="hello")
    assert answer.output_text == "echo: hello"
    strict.response(answer.model_dump(mode="json"))


def test_item_input_and_instructions(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model=MODEL,
        instructions="be brief",
        input=[
            {"role": "user", "content": "one"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "echo: one"}]},
            {"role": "developer", "content": [{"type": "input_text", "text": "stay brief"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "two"}]},
        ],
    )
    assert answer.output_text == "echo: two"
    assert answer.instructions == "be brief"


def test_the_stream_helper_accumulates_what_the_final_response_holds(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="hello wörld 🌧") as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "echo: hello wörld 🌧"


def test_every_streamed_event_is_strictly_typed_and_ordered(http: httpx.Client) -> None:
    body = {"model": MODEL, "input": "hello", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as response:
        final = strict.response_stream(strict.sse(response))
    assert final.status == "completed"
    assert final.usage is not None


def test_a_second_turn_by_id_is_warm(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="hello")
    second = client.responses.create(model=MODEL, input="more", previous_response_id=first.id)
    assert first.usage is not None
    assert second.usage is not None
    held = first.usage.input_tokens + first.usage.output_tokens - 1
    assert second.usage.input_tokens_details.cached_tokens >= held


def test_chaining_at_the_terminal_event_hits(server: LiveServer, client: openai.OpenAI) -> None:
    previous = None
    for turn in range(20):
        with client.responses.stream(model=MODEL, input=f"turn {turn}", previous_response_id=previous) as stream:
            for event in stream:
                if event.type == "response.completed":
                    previous = event.response.id
                    break
        assert previous is not None
    last = client.responses.with_raw_response.create(model=MODEL, input="last", previous_response_id=previous)
    assert last.headers["x-session-cache"] == "hit"


def test_a_length_stop_is_incomplete(http: httpx.Client) -> None:
    body = {"model": MODEL, "input": "hello", "max_output_tokens": 4}
    answer = strict.response(http.post("/v1/responses", json=body).json())
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    with http.stream("POST", "/v1/responses", json=body | {"stream": True}) as response:
        events = strict.sse(response)
    assert events[-1]["type"] == "response.incomplete"
    strict.response_stream(events)


def test_an_unknown_previous_id_is_a_400_with_its_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL, input="x", previous_response_id="resp_" + "0" * 32)
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"


def test_an_unknown_model_is_a_404_that_lists_the_known(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=MODEL) as caught:
        client.responses.create(model="gpt-9", input="x")
    assert caught.value.code == "model_not_found"


def test_context_overflow(http: httpx.Client) -> None:
    body = {"model": MODEL, "input": "x" * 40_000}
    refused = http.post("/v1/responses", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    with http.stream("POST", "/v1/responses", json=body | {"stream": True}) as response:
        events = strict.sse(response)
    assert [e["type"] for e in events] == ["response.created", "response.in_progress", "error", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "context_length_exceeded"


def test_an_engine_fault_in_a_stream_is_an_error_event_and_failed(http: httpx.Client) -> None:
    with http.stream("POST", "/v1/responses", json={"model": MODEL, "input": "FAIL:3", "stream": True}) as response:
        events = strict.sse(response)
    assert [e["type"] for e in events][-2:] == ["error", "response.failed"]
    assert events[-2]["error"]["message"] == events[-2]["message"]
    usage = events[-1]["response"]["usage"]
    assert usage["output_tokens"] == 3
    assert usage["input_tokens"] > 0


def test_the_sdk_raises_the_error_event(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError), client.responses.stream(model=MODEL, input="FAIL:3") as stream:
        stream.until_done()


def test_what_is_not_supported_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL, input="x", prompt={"id": "pmpt_1"})
    assert caught.value.param == "prompt"


def test_retrieve_input_items_and_delete(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, instructions="be brief", input="hello", metadata={"a": "b"})
    second = client.responses.create(model=MODEL, input="more", previous_response_id=first.id)
    again = client.responses.retrieve(second.id)
    assert again.output == second.output
    assert again.usage == second.usage
    assert client.responses.retrieve(first.id).metadata == {"a": "b"}
    items = list(client.responses.input_items.list(second.id, order="asc"))
    assert [i.content[0].text for i in items if i.type == "message"] == ["hello", "echo: hello", "more"]
    client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL, input="x", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"


def test_an_unstored_response_is_not_found(client: openai.OpenAI) -> None:
    unstored = client.responses.create(model=MODEL, input="hello", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)
    chained = client.responses.create(model=MODEL, input="more", previous_response_id=unstored.id, store=False)
    assert chained.output_text == "echo: more"


def test_input_tokens_are_what_the_call_uses(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="hello")
    counted = client.responses.input_tokens.count(model=MODEL, input="more", previous_response_id=first.id)
    second = client.responses.create(model=MODEL, input="more", previous_response_id=first.id)
    assert second.usage is not None
    assert counted.input_tokens == second.usage.input_tokens


def test_a_miss_is_diagnosed(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, instructions="be brief", input="hello")
    answer = client.responses.create(model=MODEL, instructions="be kind", input="more", previous_response_id=first.id)
    strict.response(answer.model_dump(mode="json"))
    diagnosis = answer.prompt_cache_diagnostics
    assert diagnosis is not None
    assert diagnosis.type == "cache_miss"
    assert diagnosis.reason == "input_changed"
    assert diagnosis.cache_missed_tokens > 0
    unknown = client.responses.create(
        model=MODEL, input="x", extra_body={"prompt_cache_options": {"comparison_response_id": "resp_unknown"}}
    )
    assert unknown.prompt_cache_diagnostics is not None
    assert unknown.prompt_cache_diagnostics.type == "comparison_response_not_found"
