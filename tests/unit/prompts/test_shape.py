"""Dialogues in the shape a template takes, with every word in its place."""

from __future__ import annotations

import pytest

from warmlane.conversation.messages import Message, Role, Text
from warmlane.prompts import ChatTemplate, PromptRenderer, TextRun
from warmlane.prompts.formats import detect_format
from warmlane.prompts.shape import Shape, shape_of, shaped

TAKES_ALL = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
FIRST_ONLY = (
    "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}<<{{ messages[0].content }}>>"
    "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
DROPS_LATE_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
    "[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
)


def said(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


S, U, A = Role.SYSTEM, Role.USER, Role.ASSISTANT


@pytest.mark.parametrize(
    ("template", "shape"),
    [
        (TAKES_ALL, Shape()),
        (FIRST_ONLY, Shape(system=True, late_system=False, repeats=False)),
        (NO_SYSTEM, Shape(system=False, late_system=False, repeats=True)),
        (DROPS_LATE_SYSTEM, Shape(system=True, late_system=False, repeats=True)),
    ],
)
def test_a_template_is_asked_what_it_takes(template: str, shape: Shape) -> None:
    assert shape_of(ChatTemplate(template)) == shape


DIALOGUE = [said(S, "s0"), said(U, "u1"), said(A, "a1"), said(S, "s1"), said(U, "u2")]


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (TAKES_ALL, "[system]s0[user]u1[assistant]a1[system]s1[user]u2"),
        (FIRST_ONLY, "<<s0>>[user]u1[assistant]a1[user]s1\n\nu2"),
        (NO_SYSTEM, "[user]s0\n\nu1[assistant]a1[user]s1\n\nu2"),
        (DROPS_LATE_SYSTEM, "[system]s0[user]u1[assistant]a1[user]s1\n\nu2"),
    ],
)
def test_nothing_is_lost_and_nothing_is_moved(template: str, shown: str) -> None:
    renderer = PromptRenderer(ChatTemplate(template), detect_format(template), special_tokens=(), tokenizer="t")
    assert "".join(run.text for run in renderer.plan(DIALOGUE).runs if isinstance(run, TextRun)) == shown


@pytest.mark.parametrize("template", [TAKES_ALL, FIRST_ONLY, NO_SYSTEM, DROPS_LATE_SYSTEM])
def test_with_a_changing_reminder_each_turn_still_extends_the_one_before(template: str) -> None:
    renderer = PromptRenderer(ChatTemplate(template), detect_format(template), special_tokens=(), tokenizer="t")
    history: list[Message] = [said(S, "be brief")]
    before = ""
    for turn in range(6):
        history += [said(S, f"<total_tokens>{100 - turn} left"), said(U, f"question {turn}")]
        text = renderer.plan(history).text
        assert text.startswith(before)
        before = text
        history.append(said(A, f"answer {turn}"))


def test_two_of_one_speaker_are_one_where_the_template_wants_turns() -> None:
    messages = [said(U, "a"), said(U, "b"), said(A, "c"), said(A, "d")]
    once = shaped(messages, Shape(repeats=False))
    assert [(m.role, m.text) for m in once] == [(U, "a\n\nb"), (A, "c\n\nd")]
    assert shaped(messages, Shape()) == tuple(messages)


def test_a_developer_message_is_a_system_message() -> None:
    messages = [said(U, "a"), said(A, "b"), said(Role.DEVELOPER, "c"), said(U, "d"), said(U, "e")]
    folded = shaped(messages, Shape(late_system=False))
    assert [m.text for m in folded] == ["a", "b", "c\n\nd", "e"]
