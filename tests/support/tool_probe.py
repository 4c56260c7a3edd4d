"""The scenarios of `canitoolcall`'s live probe with what a model writes in a format where they ask for a call.

The probe's own client asks, and its own verdicts tell; a script behind the user's last message says what the simulated
engine writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from canitoolcall.probe import BUILTIN_SCENARIOS, ProbeReport, Scenario, probe

from support.server import LiveServer
from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.prompts.formats.families import Family, format_named
from warmlane.prompts.formats.render import written_reply

MODEL = "simulated"
N_ROWS = 3 * len(BUILTIN_SCENARIOS)
"""Each scenario whole, streamed, and whether both say the same."""

PARIS = ("get_weather", {"city": "Paris", "unit": "c"})
EVENT = {
    "title": "Design review",
    "start": "2026-10-01T15:00:00Z",
    "attendees": [{"name": "Ana", "email": "ana@example.com"}, {"name": "Bo", "email": "bo@example.com"}],
    "location": {"city": "Berlin", "room": "4.12"},
}
NOTE = {"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"}
CALLS: Mapping[str, list[tuple[str, Mapping[str, object]]]] = {
    "single-call": [PARIS],
    "parallel-calls": [PARIS, ("get_weather", {"city": "Tokyo"})],
    "no-call": [],
    "nested-args": [("create_event", EVENT)],
    "unicode-args": [("save_note", NOTE)],
    "empty-args": [("get_server_time", {})],
    "forced-tool-choice": [("get_weather", {"city": "Lisbon"})],
    "reasoning-then-call": [("record_answer", {"answer": "9.9"})],
}
"""What the model writes. A result of a tool is answered without a script."""


def probed(server: LiveServer, format_name: str) -> ProbeReport:
    """What the probe says of a server that was started with this format."""
    family = format_named(format_name)
    assert isinstance(family, Family)
    scenarios = [_scripted(family, scenario) for scenario in BUILTIN_SCENARIOS]
    return probe(f"{server.base_url}/v1", MODEL, scenarios=scenarios)


def problems(report: ProbeReport) -> list[str]:
    """All but passes without a warning."""
    return [
        f"{o.scenario_id} {o.check} stream={o.stream}: {o.status} {o.detail} {o.warnings}"
        for o in report.outcomes
        if o.status != "pass" or o.warnings
    ]


def _scripted(family: Family, scenario: Scenario) -> Scenario:
    """The scenario with its reply behind the user's message, and held to its reasoning where the family has any."""
    if scenario.id == "tool-result-followup":
        return scenario
    thinks = scenario.id == "reasoning-then-call" and family.writing.thought is not None
    parts: list[Part] = [Reasoning("9.9 is 9.90, and 90 is more than 11.")] if thinks else []
    if scenario.id == "no-call":
        parts.append(Text("42"))
    for name, arguments in CALLS[scenario.id]:
        parts.append(ToolCall(name, name, json.dumps(arguments, ensure_ascii=False)))
    asked = scenario.messages[-1]
    said = {**asked, "content": f"{asked['content']}\nEMIT:{_reply(family, parts)}"}
    expect = replace(scenario.expect, expect_reasoning=thinks or None)
    return replace(scenario, messages=(*scenario.messages[:-1], said), expect=expect)


def _reply(family: Family, parts: Sequence[Part]) -> str:
    """A family whose calls each end a message writes several messages."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if family.writing.between is not None or len(calls) < 2:
        return written_reply(family.writing, parts)
    return "<|call|><|start|>assistant".join(written_reply(family.writing, [call]) for call in calls)
