"""The access line of a turn."""

from __future__ import annotations

import dataclasses

import pytest
from structlog.testing import capture_logs

from support.spine import read, rig
from warmlane.conversation.turn import Dialect
from warmlane.turns.spine import Spine


@pytest.mark.parametrize("log_text", [False, True])
async def test_the_line_holds_what_was_said_only_if_that_was_asked_for(log_text: bool) -> None:
    async with rig() as warm:
        spine = Spine(dataclasses.replace(warm.spine._parts, log_text=log_text))
        request = warm.ask("a secret")
        with capture_logs() as lines:
            await read(spine.start(request, spine.reserve("m", "")))
            await warm.idle()
    (line,) = [line for line in lines if line["event"] == "turn"]
    assert line["end"] == "stop"
    assert ("secret" in str(line)) is log_text
    if log_text:
        assert (line["asked"], line["answered"]) == ("a secret", "echo: a secret")


@pytest.mark.parametrize("log_text", [False, True])
async def test_the_line_holds_where_the_prompt_left_what_was_cached_and_both_sides_only_if_asked_for(
    log_text: bool,
) -> None:
    async with rig() as warm:
        spine = Spine(dataclasses.replace(warm.spine._parts, log_text=log_text))
        with capture_logs() as lines:
            for text in ("the plan is secret", "the plan is public"):
                request = warm.ask(text, dialect=Dialect.CHAT, store=False)
                await read(spine.start(request, spine.reserve("m", "")))
                await warm.idle()
    _, line = [line for line in lines if line["event"] == "turn"]
    assert (line["diverged"], line["diverged_at"]) == ("prefix_left", len("#user\nthe plan is "))
    assert line["diverged_at"] == line["cached_tokens"]
    assert ("secret" in str(line)) is ("public" in str(line)) is log_text
    if log_text:
        assert line["diverged_before"].startswith("secret")
        assert line["diverged_now"].startswith("public")
