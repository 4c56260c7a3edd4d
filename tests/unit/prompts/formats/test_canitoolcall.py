"""The public fixtures of `canitoolcall`: what models wrote, and what a correct parser reads of it.

Its checks and chunking strategies are its own. Strategies group tokens; the fixtures come with token ids, but without
the tokenizers, so the units here are control tokens and words. A strategy that groups single characters stands for
every other cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from canitoolcall import checks
from canitoolcall.chunking import DEFAULT_STRATEGIES, ChunkStrategy, split
from canitoolcall.fixtures import Fixture
from canitoolcall.pytest_plugin import family_for
from canitoolcall.results import Observation, ParsedToolCall, ParseResult, Status

from support.replies import told
from warmlane.conversation.tools import Tool
from warmlane.prompts.formats import format_named

_STRATEGIES = (*DEFAULT_STRATEGIES, ChunkStrategy("char", seed=0), ChunkStrategy("char", seed=1))

_UNITS = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]+\]|\s?\w+|\s+|[^\w\s]")
_CONTROL = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")

_KEPT = {"llama/l4-truncated-missing-close-bracket": "the first of two calls was whole before the reply was cut off"}
"""Where our policy for replies that were cut off is not the fixture's."""

_SPACED = {"gemma4/vllm-text-before-call": "white space before a call is text; two other fixtures want it kept"}


def _read(fixture: Fixture, pieces: list[str], *, whole_calls: bool) -> ParseResult:
    tools = []
    for offered in fixture.tools:
        function = offered["function"]
        parameters = function.get("parameters") or {"type": "object"}
        tools.append(Tool(name=function["name"], parameters=json.dumps(parameters)))
    form = format_named(fixture.family)
    reply = told(form, pieces, tools, opening=_opening(fixture), whole_calls=whole_calls)
    calls = tuple(ParsedToolCall(name, arguments) for _, name, arguments in reply.whole)
    return ParseResult(content=reply.text or None, reasoning_content=reply.reasoning or None, tool_calls=calls)


def _opening(fixture: Fixture) -> str:
    if fixture.generation_prompt is not None:
        return fixture.generation_prompt
    family = family_for(fixture)
    assert family is not None
    models = {model.repo: model.default_generation_prompt for model in family.reference_models}
    return models.get(fixture.reference_model) or ""


def _streams(fixture: Fixture, strategies: Sequence[ChunkStrategy]) -> dict[str, list[str]]:
    words = [found[0] for found in _UNITS.finditer(fixture.raw_output)]
    assert "".join(words) == fixture.raw_output
    special = {word for word in words if _CONTROL.fullmatch(word)}
    streams: dict[str, list[str]] = {}
    for strategy in strategies:
        units = list(fixture.raw_output) if strategy.kind == "char" else words
        streams[strategy.id] = ["".join(group) for group in split(units, strategy, special)]
    return streams


@pytest.mark.parametrize(
    ("whole_calls", "strategies"), [(False, _STRATEGIES), (True, _STRATEGIES[-2:])], ids=["streamed", "whole"]
)
def test_replies_are_read_as_they_should_be(
    canitoolcall_fixture: Fixture, whole_calls: bool, strategies: Sequence[ChunkStrategy]
) -> None:
    fixture = canitoolcall_fixture
    observed = Observation(
        nonstream=_read(fixture, [fixture.raw_output], whole_calls=whole_calls),
        streams={
            name: _read(fixture, pieces, whole_calls=whole_calls)
            for name, pieces in _streams(fixture, strategies).items()
        },
    )
    rows = checks.run_checks(fixture, family_for(fixture), observed)
    if fixture.id in _KEPT:
        rows = [row for row in rows if row.check != "expected_error"]
    worst = Status.SOFT_PASS if fixture.id in _SPACED else Status.PASS
    assert checks.case_status(rows) == worst, "\n".join(f"{r.check} {r.strategy}: {r.detail}" for r in rows if r.detail)
