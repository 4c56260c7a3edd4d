"""Bends a dialogue into the shape a template takes, without moving what was said.

Many templates allow a system message only in front, or none, and want user and assistant to alternate. A template is
asked once what it takes. Where it does not take a system message, its text joins the user's message that follows (or is
one), in its place: hoisting it to the front would change the prompt from its first token on at every turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warmlane.conversation.messages import Message, Role, Text
from warmlane.prompts.template import ChatTemplate, TemplateRejected

_SYSTEM_ROLES = (Role.SYSTEM, Role.DEVELOPER)
_BETWEEN = Text("\n\n")
_PROBES = ("probe-one", "probe-two", "probe-three", "probe-four")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a template takes: a system message in front, one later on, and two messages of one speaker in a row."""

    system: bool = True
    late_system: bool = True
    repeats: bool = True


def shape_of(template: ChatTemplate) -> Shape:
    """Ask the template: what it takes shows in its output, whole."""
    return Shape(
        system=_shows(template, Role.SYSTEM, Role.USER),
        late_system=_shows(template, Role.USER, Role.ASSISTANT, Role.SYSTEM, Role.USER),
        repeats=_shows(template, Role.USER, Role.USER),
    )


def shaped(messages: Sequence[Message], shape: Shape) -> tuple[Message, ...]:
    """The dialogue as the template takes it; unchanged where it takes all."""
    if shape == Shape():
        return tuple(messages)
    shown: list[Message] = []
    open_fold = False  # whether the last message shown is a system text that waits for the user's own
    for index, message in enumerate(messages):
        folds = _refused(index, message, shape)
        said = Message(Role.USER, message.parts) if folds else message
        last = shown[-1] if shown else None
        alike = last is not None and last.role is said.role and said.role in (Role.USER, Role.ASSISTANT)
        if last is not None and alike and (folds or open_fold or not shape.repeats):
            shown[-1] = Message(said.role, (*last.parts, _BETWEEN, *said.parts))
        else:
            shown.append(said)
        open_fold = folds
    return tuple(shown)


def _refused(index: int, message: Message, shape: Shape) -> bool:
    if message.role not in _SYSTEM_ROLES:
        return False
    return not (shape.system if index == 0 else shape.late_system)


def _shows(template: ChatTemplate, *roles: Role) -> bool:
    asked = [{"role": role.value, "content": text} for role, text in zip(roles, _PROBES, strict=False)]
    try:
        shown = template.render(asked)
    except TemplateRejected:
        return False
    positions = [shown.find(message["content"]) for message in asked]
    return -1 not in positions and positions == sorted(positions)
