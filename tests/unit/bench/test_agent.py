"""The agent's session: what it sends again, what it leaves out, and what of it could be reused."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import httpx

from support.bench import client_of, reply
from warmlane.bench.agent_script import AgentSession, AgentSizes, MessagesRequest, common_messages
from warmlane.bench.replies import Reply, ToolUse
from warmlane.bench.reusable import CountedTokens, Exchange, ServedTokens, common_prefix, cut, pick_reference

SIZES = AgentSizes(system_words=20, result_words=3)
ANSWER = "one two three four"


def session(*, native: bool = False, seed: int = 1) -> AgentSession:
    return AgentSession(random.Random(seed), SIZES, native_tools=native)


def requests(n: int, *, native: bool = False) -> list[MessagesRequest]:
    """The first calls of a session whose model always says the same."""
    agent = session(native=native)
    sent = []
    for _ in range(n):
        sent.append(agent.request())
        agent.take(reply(ANSWER))
    return sent


def texts(request: MessagesRequest) -> list[str]:
    return [text for _, text in request.as_texts()]


def test_the_seed_repeats_a_session() -> None:
    assert requests(8) == requests(8)
    assert session(seed=2).request() != session().request()


def test_each_call_goes_on_from_the_one_before() -> None:
    for n, (earlier, later) in enumerate(pairwise(requests(3))):
        n_common, _ = common_messages(earlier.answered(reply(ANSWER)).as_texts(), later.as_texts())
        assert n_common == 3 + 2 * n, "the system prompt, the dialogue so far, and the reply"


def test_results_are_parallel() -> None:
    assert requests(2)[1].as_texts()[-1][1].count("[") == 2


def test_the_billing_line_is_first_and_never_the_same() -> None:
    agent = session()
    request = agent.request()
    first, second = (request.body(agent.billing_line()) for _ in range(2))

    assert first != second
    system = first["system"]
    assert isinstance(system, list)
    assert system[0]["text"].startswith("x-anthropic-billing-header: ")
    assert first["messages"] == second["messages"]


def test_the_reminder_moves() -> None:
    holders = [[n for n, text in enumerate(texts(r)) if "<system-reminder>" in text] for r in requests(8)]

    assert all(len(where) <= 1 for where in holders)
    assert [bool(where) for where in holders] == [False, False, False, True, False, False, True, False]
    assert all(where == [len(texts(r)) - 1] for where, r in zip(holders, requests(8), strict=True) if where)


def test_thoughts_are_dropped_from_history() -> None:
    last = texts(requests(6)[-1])

    assert [text for text in last if text in (ANSWER, "three four")] == [ANSWER, ANSWER, ANSWER, "three four", ANSWER]


def test_tools_are_sent_natively_or_as_text() -> None:
    as_text, native = session().request(), session(native=True).request()

    tools = native.body(None)["tools"]
    assert isinstance(tools, list)
    assert len(tools) == 12
    assert "tools" not in as_text.body(None)
    assert as_text.system.count("input_schema") == 12
    assert "input_schema" not in native.system


def test_calls_are_answered_by_their_results() -> None:
    agent = session(native=True)
    uses = tuple(ToolUse(call_id=f"c{n}", name="read", arguments='{"path": "a"}') for n in range(2))
    said = Reply(
        text="I read.",
        ttft_s=0.1,
        piece_times_s=(),
        total_s=1,
        prompt_tokens=1,
        cached_tokens=0,
        output_tokens=1,
        tool_uses=uses,
    )
    agent.take(said)

    messages = agent.request().body(None)["messages"]
    assert isinstance(messages, list)
    assert messages[1]["content"][1:] == [
        {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"path": "a"}} for n in range(2)
    ]
    assert [block["tool_use_id"] for block in messages[2]["content"]] == ["c0", "c1"]


def test_common_messages() -> None:
    one = [("system", "s"), ("user", "abc")]

    assert common_messages(one, [*one, ("assistant", "x")]) == (2, 0)
    assert common_messages(one, [("system", "s"), ("user", "abd")]) == (1, 2)
    assert common_messages(one, [("system", "s"), ("assistant", "abc")]) == (1, 0)
    assert common_messages(one, [("system", "t")]) == (0, 0)


def test_cut_keeps_the_common_part() -> None:
    request = requests(3)[-1]

    assert texts(cut(request, 2, 5)) == [*texts(request)[:2], texts(request)[2][:5]]
    assert texts(cut(request, 2, 0)) == texts(request)[:2]
    assert texts(cut(request, 1, 0)) == [request.system, "."], "a request has a message"
    assert texts(cut(request, 3, 0))[-1] == ".", "and ends with the user's"


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2


def word_server(request: httpx.Request) -> httpx.Response:
    """A llama-server and a count endpoint whose tokens are words."""
    body = json.loads(request.content)
    match request.url.path:
        case "/apply-template":
            return httpx.Response(200, json={"prompt": " ".join(m["content"] for m in body["messages"]) + " "})
        case "/tokenize":
            return httpx.Response(200, json={"tokens": [hash(word) for word in body["content"].split()]})
        case "/v1/messages/count_tokens":
            blocks = [*body["system"], *(block for m in body["messages"] for block in m["content"])]
            return httpx.Response(200, json={"input_tokens": sum(len(b["text"].split()) for b in blocks)})
    return httpx.Response(404)


def n_words(request: MessagesRequest) -> int:
    return sum(len(text.split()) for text in texts(request))


async def test_a_continuation_could_reuse_the_whole_prompt_and_output_before_it() -> None:
    first, second = requests(2)
    async with client_of(word_server) as client:
        for reference in (ServedTokens(client), CountedTokens(client)):
            assert await reference.reusable(first, reply(ANSWER, prompt=n_words(first), output=4)) == 0
            found = await reference.reusable(second, reply(ANSWER, prompt=n_words(second), output=4))
            assert found == n_words(first) + 4


async def test_the_same_request_again_could_reuse_all_but_one() -> None:
    first = requests(1)[0]
    answered = reply(ANSWER, prompt=n_words(first), output=4)
    async with client_of(word_server) as client:
        for reference in (ServedTokens(client), CountedTokens(client)):
            await reference.reusable(first, answered)
            assert await reference.reusable(first, answered) == n_words(first) - 1


async def test_a_changed_history_could_be_reused_up_to_the_change() -> None:
    sent = requests(6)
    async with client_of(word_server) as client:
        served, counted = ServedTokens(client), CountedTokens(client)
        for request in sent[:4]:
            answered = reply(ANSWER, prompt=n_words(request), output=4)
            await served.reusable(request, answered)
            await counted.reusable(request, answered)
        asked = reply(ANSWER, prompt=n_words(sent[4]), output=4)
        exact, bound = await served.reusable(sent[4], asked), await counted.reusable(sent[4], asked)

    # The fourth reply lost its thoughts, and the reminder before it is gone.
    assert n_words(sent[2]) < exact < n_words(sent[3])
    assert exact <= bound <= exact + 1


async def test_the_exact_way_is_taken_where_its_count_agrees() -> None:
    request = requests(1)[0]
    async with client_of(word_server) as client, client_of(lambda _: httpx.Response(404)) as other:
        agreeing = Exchange(request, reply(prompt=n_words(request)))
        assert isinstance(await pick_reference(other, client, agreeing), ServedTokens)
        assert isinstance(await pick_reference(client, client, Exchange(request, reply(prompt=1))), CountedTokens)
        assert isinstance(await pick_reference(client, other, agreeing), CountedTokens)
        assert isinstance(await pick_reference(client, None, agreeing), CountedTokens)
