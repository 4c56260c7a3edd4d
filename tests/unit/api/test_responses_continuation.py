"""Responses that live as long as their WebSocket, and what is continued on it."""

from __future__ import annotations

from typing import Any

import pytest

from support.edge import check_responses, edge_app
from support.fake_turns import FakeTurns, Scripts, text_turn
from support.websocket import connected, error_of
from warmlane.api.responses.continuation import MAX_KEPT, MAX_OWNED, Owners
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.events import Failed, Validated
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import EngineFault, PreviousResponseNotFound, QueueFull
from warmlane.turns.stream import TurnStream


class Warm(FakeTurns):
    """Knows a previous response as long as it is in `warm`."""

    def __init__(self) -> None:
        super().__init__()
        self.warm: set[str] = set()

    def start(self, request: TurnRequest, permit: object) -> TurnStream:
        previous = request.previous_response_id
        lost = previous is not None and previous not in self.warm
        self.script = [Failed(PreviousResponseNotFound(previous or ""))] if lost else text_turn("said")
        self.warm.discard(previous or "")
        self.warm |= set() if lost else {request.response_id}
        return super().start(request, permit)

    async def count_tokens(self, request: TurnRequest) -> int:
        if request.previous_response_id is not None and request.previous_response_id not in self.warm:
            raise PreviousResponseNotFound(request.previous_response_id)
        await super().count_tokens(request)
        return 1000 * len(request.input)


def id_of(events: list[dict[str, Any]]) -> str:
    assert events[-1]["type"] == "response.completed", events[-1]
    return str(events[-1]["response"]["id"])


async def test_an_unstored_response_is_continued_warm_and_cold_alike() -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        first = id_of(await socket.ask(store=False, input="one"))
        second = id_of(await socket.ask(store=False, input="two", previous_response_id=first))
        assert turns.last.previous_response_id == first
        turns.warm.clear()
        events = await socket.ask(store=False, input="three", previous_response_id=second)
    assert events[-1]["response"]["previous_response_id"] == second
    assert turns.last.previous_response_id is None
    assert [message.text for message in turns.last.input] == ["one", "said", "two", "said", "three"]
    assert turns.open_permits == 0


async def test_an_unstored_response_may_be_continued_again() -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        first = id_of(await socket.ask(store=False, input="one"))
        for branch in ("two", "three"):
            events = await socket.ask(store=False, input=branch, previous_response_id=first)
            assert events[-1]["response"]["previous_response_id"] == first
        assert [message.text for message in turns.last.input] == ["one", "said", "three"]
        id_of(await socket.ask(store=True, input="four", previous_response_id=first))
        id_of(await socket.ask(store=False, input="five", previous_response_id=first))
    assert [message.text for message in turns.last.input] == ["one", "said", "five"]


async def test_a_cold_continuation_is_cut_to_fit_too() -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        first = id_of(await socket.ask(store=False, input="one"))
        turns.warm.clear()
        items = [{"role": "user", "content": f"item {n}"} for n in range(3)]
        events = await socket.ask(store=False, truncation="auto", input=items, previous_response_id=first)
        assert events[0]["warnings"] == ["input (its 2 oldest items)"]
        assert [message.text for message in turns.last.input] == ["one", "said", "item 2"]
        error = error_of(await socket.ask(truncation="auto", input=items, previous_response_id="resp_gone"))
    assert error["code"] == "previous_response_not_found"


async def test_a_stored_response_is_not_kept_here() -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        first = id_of(await socket.ask(store=True))
        turns.warm.clear()
        error = error_of(await socket.ask(previous_response_id=first))
        assert error["code"] == "previous_response_not_found"
        turns.warm.add(first)
        id_of(await socket.ask(previous_response_id=first))


async def test_another_socket_does_not_find_an_unstored_response() -> None:
    turns = Warm()
    app = edge_app(turns)
    async with connected(app) as one:
        first = id_of(await one.ask(store=False))
    async with connected(app) as other:
        events = await other.ask(store=False, previous_response_id=first)
        error = error_of(events)
        assert (events[0]["status"], error["code"], error["param"]) == (
            400,
            "previous_response_not_found",
            "previous_response_id",
        )
        id_of(await other.ask(store=False, input=[{"role": "user", "content": "all of it"}]))
    assert len(turns.requests) == 2


@pytest.mark.parametrize("broken", [{"temperature": 9}, {"model": "gpt-9"}, {"input": []}])
async def test_a_failed_continuation_takes_what_it_named_along(broken: dict[str, Any]) -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        first = id_of(await socket.ask(store=False))
        error_of(await socket.ask(store=False, previous_response_id=first, **broken))
        error = error_of(await socket.ask(store=False, previous_response_id=first))
    assert error["code"] == "previous_response_not_found"
    assert len(turns.requests) == 1


async def test_a_turn_that_fails_while_it_runs_takes_what_it_named_along() -> None:
    turns = Scripts(text_turn("x"), [Validated(), Failed(EngineFault("it broke"))], text_turn("y"))
    async with connected(edge_app(turns)) as socket:
        first = id_of(await socket.ask(store=False))
        await socket.ask(store=False, previous_response_id=first)
        assert error_of(await socket.ask(store=False, previous_response_id=first))["param"] == "previous_response_id"


async def test_an_overload_takes_nothing_along() -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        first = id_of(await socket.ask(store=False))
        turns.refusal = QueueFull(waiting=1, permits=2, limit=3)
        error_of(await socket.ask(store=False, previous_response_id=first))
        turns.refusal = None
        id_of(await socket.ask(store=False, previous_response_id=first))


async def test_a_socket_goes_on_with_its_latest_responses() -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        ids = [id_of(await socket.ask(store=False)) for _ in range(MAX_KEPT + 1)]
        turns.warm.clear()
        assert error_of(await socket.ask(previous_response_id=ids[0]))["code"] == "previous_response_not_found"
        id_of(await socket.ask(store=False, previous_response_id=ids[1]))


async def test_a_warm_up_is_answered_at_once_and_continued() -> None:
    turns = Warm()
    async with connected(edge_app(turns)) as socket:
        events = await socket.ask(store=False, generate=False, instructions="be brief", input="one")
        check_responses(events)
        assert (events[-1]["response"]["output"], events[-1]["response"]["usage"]["total_tokens"]) == ([], 0)
        assert (turns.requests, turns.open_permits) == ([], 0)
        await socket.ask(store=False, previous_response_id=id_of(events), input=[], instructions="be brief")
        assert [message.text for message in turns.last.input] == ["one"]
        again = id_of(await socket.ask(store=False, generate=False, input=[]))
        await socket.ask(store=False, previous_response_id=again, input="two")
        assert [message.text for message in turns.last.input] == ["two"]


async def test_a_warm_up_says_that_it_is_not_stored() -> None:
    async with connected(edge_app(Warm())) as socket:
        silent = await socket.ask(generate=False, input="one")
        asked = await socket.ask(generate=False, input="one", store=True)
    assert [events[-1]["response"]["store"] for events in (silent, asked)] == [False, False]
    assert ("warnings" in silent[0], asked[0]["warnings"]) == (False, ["store"])


@pytest.mark.parametrize(
    ("fields", "param"), [({"generate": "no"}, "generate"), ({"generate": False, "conversation": "c"}, "conversation")]
)
async def test_what_cannot_be_prepared_for(fields: dict[str, Any], param: str) -> None:
    async with connected(edge_app(Warm())) as socket:
        assert error_of(await socket.ask(input="one", **fields))["param"] == param


async def test_warm_ups_that_follow_each_other_are_bounded_together() -> None:
    turns = Warm()
    async with connected(edge_app(turns, settings=EdgeSettings(max_body_bytes=1000))) as socket:
        warm_up = {"store": False, "generate": False, "input": [{"role": "user", "content": "x" * 400}]}
        first = id_of(await socket.ask(**warm_up))
        second = id_of(await socket.ask(**warm_up, previous_response_id=first))
        events = await socket.ask(**warm_up, previous_response_id=second)
        error = error_of(events)
        assert (events[0]["status"], error["code"]) == (413, "request_too_large")
        assert "'input'" in error["message"]
        id_of(await socket.ask(store=False, previous_response_id=first))
    assert [len(message.text) for message in turns.last.input] == [400, 2]


def test_the_makers_of_responses_are_forgotten_in_the_end() -> None:
    owners = Owners()
    one, other = owners.connect(), owners.connect()
    for n in range(MAX_OWNED + 1):
        owners.claim(f"resp_{n}", one)
    assert owners.may_continue("resp_0", other)
    assert not owners.may_continue("resp_1", other)
    assert owners.may_continue("resp_1", one)
