"""What a template writes around a reply: how it opens one, and the control token that ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warmlane.prompts.control_text import ControlText
from warmlane.prompts.skills import CallForm, called, resulted
from warmlane.prompts.template import ChatTemplate, TemplateMessage, TemplateRejected

_ASKED, _SAID = "probe-asked", "probe-said"
_THINKING: tuple[Mapping[str, object], ...] = (
    {},
    {"enable_thinking": True, "thinking": True},
    {"enable_thinking": False, "thinking": False},
)


@dataclass(frozen=True, slots=True)
class ReplyMarks:
    """One of `anchors` stands in front of every reply; one of `tails`, the longest first and "" last, may follow it
    before the reply itself (reasoning that the template opens, or opens and shuts). `closing` is the text of the
    control token behind a reply, "" if none is known. `certain`: no content can be mistaken for an anchor, since a
    control token is part of each."""

    anchors: tuple[str, ...] = ()
    tails: tuple[str, ...] = ("",)
    closing: str = ""
    certain: bool = False

    def openings(self) -> tuple[str, ...]:
        """All that may stand directly in front of a reply."""
        return tuple(anchor + tail for anchor in self.anchors for tail in self.tails)


def marks_of(template: ChatTemplate, control: ControlText, form: CallForm | None) -> ReplyMarks:
    """Ask the template."""
    asked: TemplateMessage = {"role": "user", "content": _ASKED}
    openings = [text for variables in _THINKING if (text := _opening(template, asked, variables))]
    before, behind = _around_reply(template, asked)
    closing = control.leading(behind)
    if openings:
        known = [*openings, before] if before else openings
        anchor = _common_start(known)
        tails = sorted({text.removeprefix(anchor) for text in known} | {""}, key=lambda tail: (-len(tail), tail))
        anchors: tuple[str, ...] = (anchor,) if anchor else ()
    else:
        anchors, tails = _ends_of_questions(template, control, asked, form), [""]
    certain = bool(anchors) and all(control.holds(anchor) for anchor in anchors)
    return ReplyMarks(anchors, tuple(tails), closing, certain)


def _common_start(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    return low[: next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]


def _opening(template: ChatTemplate, asked: TemplateMessage, variables: Mapping[str, object]) -> str:
    """The generation prompt; "" in a template without one."""
    try:
        without = template.render([asked], variables=variables, add_generation_prompt=False)
        with_prompt = template.render([asked], variables=variables)
    except TemplateRejected:
        return ""
    return with_prompt.removeprefix(without) if with_prompt.startswith(without) else ""


def _around_reply(template: ChatTemplate, asked: TemplateMessage) -> tuple[str, str]:
    """What a reply in the history stands between; "" where that cannot be told."""
    reply = {"role": "assistant", "content": _SAID}
    try:
        without = template.render([asked], add_generation_prompt=False)
        shown = template.render([asked, reply], add_generation_prompt=False)
    except TemplateRejected:
        return "", ""
    front, found, behind = shown.partition(_SAID)
    if not found:
        return "", ""
    return front.removeprefix(without) if front.startswith(without) else "", behind


def _ends_of_questions(
    template: ChatTemplate, control: ControlText, asked: TemplateMessage, form: CallForm | None
) -> tuple[str, ...]:
    """In a template without a generation prompt: what ends a user's message, and what ends a tool's."""
    dialogues: list[tuple[list[TemplateMessage], str]] = [([asked], _ASKED)]
    if form is not None:
        result = resulted(form)
        dialogues.append(([asked, called(form), result], str(result["content"])))
    ends: list[str] = []
    for dialogue, content in dialogues:
        try:
            shown = template.render(dialogue, add_generation_prompt=False)
        except TemplateRejected:
            continue
        _, found, behind = shown.rpartition(content)
        end = control.from_last(behind)
        if found and end and end not in ends:
            ends.append(end)
    return tuple(ends)
