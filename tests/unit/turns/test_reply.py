"""How a reply ended, as far as the engine said so."""

from __future__ import annotations

import itertools

import pytest

from warmlane.conversation.events import Started, TextDelta
from warmlane.conversation.tools import Tool
from warmlane.conversation.turn import DivergenceCause, StopReason
from warmlane.engine.backends.bytes_vocab import CHAT_TEMPLATE
from warmlane.engine.protocol import Chunk, Divergence, Ended, EndReason, Placed
from warmlane.errors import EngineFault
from warmlane.prompts.formats import detect_format
from warmlane.turns.diagnosis import Diagnosis
from warmlane.turns.reader import ReplyReader
from warmlane.turns.reply import Reply

CALL = '<tool_call>\n{"name":"f","arguments":{}}\n</tool_call>'
CUT = CALL[: CALL.index("}}")]


def reply(*, stop: tuple[str, ...] = (), diagnosis: Diagnosis | None = None) -> Reply:
    parser = detect_format(CHAT_TEMPLATE).parser([Tool(name="f")], new_call_id=lambda: "id")
    ticks = itertools.count()
    reader = ReplyReader(parser, stop=stop)
    return Reply(reader, diagnosis=diagnosis or Diagnosis(), now=lambda: float(next(ticks)))


def ended(reason: EndReason = EndReason.STOP, *, n: int = 9) -> Ended:
    return Ended(reason, None, n, (1, 2), "ab", prefill_ms=3.0, decode_ms=4.0)


@pytest.mark.parametrize(
    ("text", "end", "reason"),
    [
        ("hello", EndReason.STOP, StopReason.STOP),
        (CALL, EndReason.STOP, StopReason.TOOL_CALLS),
        (CALL, EndReason.LENGTH, StopReason.LENGTH),
        (CUT, EndReason.LENGTH, StopReason.LENGTH),
        (CUT, EndReason.STOP, StopReason.STOP),
    ],
)
def test_why_it_ended(text: str, end: EndReason, reason: StopReason) -> None:
    made = reply()
    made.hear(Chunk(text, 1))
    made.hear(ended(end))
    assert made.stop_reason is reason
    assert made.ending() == ended(end)
    assert not made.cut


def test_one_that_never_ended_is_a_fault() -> None:
    made = reply()
    made.hear(Chunk("hello", 1))
    with pytest.raises(EngineFault):
        made.ending()
    with pytest.raises(EngineFault):
        _ = made.placed


def test_a_reply_that_is_cut_keeps_the_tokens_before_the_stop_string() -> None:
    made = reply(stop=("stop",))
    made.hear(Placed(5, 0))
    pieces = ["hel", "lo", "", " s", "to", "p and"]
    told = [made.hear(Chunk(piece, 1, token_ids=(n,) if piece else ())) for n, piece in enumerate(pieces)]
    assert made.cut
    assert "".join(e.text for events in told for e in events if isinstance(e, TextDelta)) == "hello "
    end = made.ending()
    assert (end.token_ids, end.token_text) == ((0, 1), "hello")
    assert (end.reason, end.stop_sequence, end.output_tokens) == (EndReason.STOP_SEQUENCE, "stop", 6)
    assert end.prefill_ms > 0
    assert made.stop_reason is StopReason.STOP_SEQUENCE


def test_a_stop_string_found_as_the_reply_ends_cuts_nothing_short() -> None:
    made = reply(stop=("<tool",))
    made.hear(Chunk("see <tool", 1, token_ids=(1,)))
    made.hear(ended(n=2))
    assert not made.cut
    assert (made.stop_reason, made.ending().output_tokens) == (StopReason.STOP_SEQUENCE, 2)


def test_the_first_event_says_why_so_little_was_cached() -> None:
    made = reply()
    (event,) = made.hear(Placed(9, 4, divergence=Divergence(4, 7, "old", "new")))
    assert isinstance(event, Started)
    assert event.divergence is not None
    assert event.divergence == made.divergence
    assert (event.divergence.cause, event.divergence.missed_tokens) == (DivergenceCause.PREFIX_LEFT, 3)
