"""The access line of a turn."""

from __future__ import annotations

import dataclasses

import pytest
from structlog.testing import capture_logs

from support.spine import read, rig
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
