"""Streams, as either server sends them, to replies with the time of each piece."""

from __future__ import annotations

import json

import pytest

from warmlane.bench.replies import ChatTranscript, MessagesTranscript, SseData
from warmlane.errors import BenchError


def chunk(**fields: object) -> str:
    return json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [], **fields})


def delta(**fields: object) -> str:
    return chunk(choices=[{"index": 0, "delta": fields, "finish_reason": None}])


def test_lines_to_data() -> None:
    sse = SseData()
    lines = [": comment", "event: a", "data: one", "data:two", "", "", "data: [DONE]", ""]

    assert [data for line in lines if (data := sse.feed(line)) is not None] == ["one\ntwo", "[DONE]"]


def test_a_chat_stream_of_ours() -> None:
    transcript = ChatTranscript()
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}

    assert not transcript.add(delta(role="assistant", content=""), 0.1)
    assert transcript.add(delta(content="Hel"), 0.5)
    assert transcript.add(delta(content="lo"), 0.75)
    transcript.add(chunk(usage=usage, warmlane={"cache_miss_reason": "expired"}), 0.8)
    transcript.add("[DONE]", 0.8)
    reply = transcript.reply(0.9)

    assert (reply.text, reply.ttft_s, reply.piece_times_s, reply.gaps_s) == ("Hello", 0.5, (0.5, 0.75), (0.25,))
    assert (reply.prompt_tokens, reply.cached_tokens, reply.output_tokens) == (9, 5, 3)
    assert (reply.total_s, reply.miss_reason) == (0.9, "expired")


def test_llama_server_tells_reuse_in_its_timings() -> None:
    transcript = ChatTranscript()
    transcript.add(delta(content="x"), 0.5)
    transcript.add(chunk(usage={"prompt_tokens": 9, "completion_tokens": 3}, timings={"cache_n": 7, "prompt_n": 2}), 1)

    assert transcript.reply(1).cached_tokens == 7


def test_usage_goes_before_timings() -> None:
    transcript = ChatTranscript()
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 6}}
    transcript.add(delta(content="x"), 0.5)
    transcript.add(chunk(usage=usage, timings={"cache_n": 7}), 1)

    assert transcript.reply(1).cached_tokens == 6


def test_thoughts_are_a_first_piece_too() -> None:
    transcript = ChatTranscript()
    transcript.add(delta(reasoning_content="hm"), 0.2)
    transcript.add(delta(content="yes"), 0.5)
    transcript.add(chunk(usage={"prompt_tokens": 1, "completion_tokens": 2}), 0.6)

    reply = transcript.reply(0.6)

    assert (reply.ttft_s, reply.text) == (0.2, "yes")


def test_a_reply_whose_first_token_ends_it_is_timed_by_its_end() -> None:
    silent = ChatTranscript()
    silent.add(chunk(usage={"prompt_tokens": 1, "completion_tokens": 1}), 1)

    reply = silent.reply(1.5)

    assert (reply.ttft_s, reply.text, reply.gaps_s) == (1.5, "", ())


def test_a_stream_without_text_or_usage_is_no_measurement() -> None:
    silent = ChatTranscript()
    silent.add(chunk(usage={"prompt_tokens": 1, "completion_tokens": 0}), 1)
    with pytest.raises(BenchError, match="no text"):
        silent.reply(1)
    cut = ChatTranscript()
    cut.add(delta(content="x"), 1)
    with pytest.raises(BenchError, match="usage"):
        cut.reply(1)


@pytest.mark.parametrize("transcript", [ChatTranscript(), MessagesTranscript()])
def test_an_error_in_the_stream_is_told(transcript: ChatTranscript | MessagesTranscript) -> None:
    with pytest.raises(BenchError, match="out of cells"):
        transcript.add('{"type": "error", "error": {"message": "out of cells"}}', 1)
    with pytest.raises(BenchError, match="not an event"):
        transcript.add("<html>", 1)


def test_a_messages_stream() -> None:
    transcript = MessagesTranscript()
    usage = {"input_tokens": 4, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 1, "output_tokens": 1}
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    events: list[tuple[float, dict[str, object]]] = [
        (0.1, {"type": "ping"}),
        (0.2, {"type": "message_start", "message": {"usage": usage}}),
        (0.3, {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
        (0.4, {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "I read."}}),
        (0.5, {"type": "content_block_start", "content_block": call}),
        (0.6, {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"path":'}}),
        (0.7, {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '"a"}'}}),
        (0.8, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 8}}),
        (0.9, {"type": "message_stop", "warmlane": {"cache_miss_reason": "busy"}}),
    ]

    spoken = [transcript.add(json.dumps(event), at) for at, event in events]
    reply = transcript.reply(0.9)

    assert [at for (at, _), piece in zip(events, spoken, strict=True) if piece] == [0.4, 0.6, 0.7]
    assert (reply.text, reply.ttft_s, reply.miss_reason) == ("I read.", 0.4, "busy")
    assert (reply.prompt_tokens, reply.cached_tokens, reply.output_tokens) == (11, 6, 8)
    assert [(use.call_id, use.name, use.arguments) for use in reply.tool_uses] == [("c1", "read", '{"path":"a"}')]


def test_a_call_cut_short_has_no_arguments() -> None:
    transcript = MessagesTranscript()
    transcript.add('{"type":"content_block_start","content_block":{"type":"tool_use","id":"c","name":"n"}}', 1)
    transcript.add('{"type":"content_block_delta","delta":{"partial_json":"{\\"pa"}}', 1)
    transcript.add('{"type":"message_delta","usage":{"output_tokens":2}}', 1)

    assert transcript.reply(1).tool_uses[0].arguments == "{}"
