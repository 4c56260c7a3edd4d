"""What a chat template shows of tools, calls, results and reasoning. It is asked once.

Each probe renders a tiny dialogue and looks for what was put into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from warmlane.prompts.template import ChatTemplate, TemplateMessage, TemplateRejected

_TEXT, _THOUGHT, _RESULT = "probe-text", "probe-thought", "probe-result"
_TOOL, _KEY, _VALUE = "probe_tool", "probe_key", "probe-value"
_FIRST, _SECOND = f"{_VALUE}0", f"{_VALUE}1"
_LONG_ID, _SHORT_ID = "call_0123456789abcdef", "call01234"
_STRANGER = "probe-role"
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_ASKED: TemplateMessage = {"role": "user", "content": "probe-question"}


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a template wants calls: `text_arguments` as JSON text rather than a mapping, `null_content` for a message
    without text, `short_ids` of nine letters and digits."""

    text_arguments: bool = False
    null_content: bool = False
    short_ids: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skills:
    """`tools`: the list of them reaches the prompt. `calls`: how an assistant's calls do, None if they do not;
    `several_calls` in one message, `text_with_calls` beside them, or `text_before_calls` in a message of its own.
    `results`: messages of role `tool` do. `reasoning_key`: the field an assistant's reasoning is read from, None if it
    is never shown."""

    tools: bool = True
    calls: CallForm | None = CallForm()
    several_calls: bool = True
    text_with_calls: bool = True
    text_before_calls: bool = True
    results: bool = True
    reasoning_key: str | None = "reasoning_content"


def skills_of(template: ChatTemplate) -> Skills:
    """Ask the template."""
    form = _call_form(template)
    return Skills(
        tools=_shows(template, [_ASKED], (_TOOL,), tools=True),
        calls=form,
        several_calls=form is not None and _takes_two(template, form),
        text_with_calls=form is not None
        and _shows(template, [_ASKED, called(form, text=_TEXT), resulted(form)], (_TEXT, _FIRST, _RESULT)),
        text_before_calls=form is not None and _takes_text_before(template, form),
        results=_takes_results(template, form),
        reasoning_key=_reasoning_key(template),
    )


def called(form: CallForm, *, text: str = "", number: int = 0) -> TemplateMessage:
    """The probes' message of a call."""
    return {
        "role": "assistant",
        "content": text or (None if form.null_content else ""),
        "tool_calls": [_call(form, number)],
    }


def resulted(form: CallForm, *, number: int = 0) -> TemplateMessage:
    """The probes' message of a result."""
    call_id = _SHORT_ID if form.short_ids else _LONG_ID
    return {"role": "tool", "content": _RESULT, "tool_call_id": f"{call_id[:-1]}{number}", "name": _TOOL}


def _call(form: CallForm, number: int) -> dict[str, object]:
    call_id = _SHORT_ID if form.short_ids else _LONG_ID
    value = f"{_VALUE}{number}"
    arguments: object = f'{{"{_KEY}": "{value}"}}' if form.text_arguments else {_KEY: value}
    return {
        "id": f"{call_id[:-1]}{number}",
        "type": "function",
        "function": {"name": _TOOL, "arguments": arguments},
    }


def _call_form(template: ChatTemplate) -> CallForm | None:
    for short_ids, null_content, text in itertools.product((False, True), repeat=3):
        form = CallForm(text_arguments=text, null_content=null_content, short_ids=short_ids)
        if _shows_call(template, [_ASKED, called(form), resulted(form)]):
            return form
    # It may show calls and refuse results.
    return CallForm() if _shows_call(template, [_ASKED, called(CallForm())]) else None


def _shows_call(template: ChatTemplate, messages: Sequence[TemplateMessage]) -> bool:
    """Whether the arguments are there, neither as Python prints a mapping nor as JSON text put into JSON again."""
    shown = _rendered(template, messages)
    if shown is None or _TOOL not in shown or _FIRST not in shown:
        return False
    return f"'{_KEY}'" not in shown and f'\\"{_KEY}' not in shown


def _takes_two(template: ChatTemplate, form: CallForm) -> bool:
    both = {**called(form), "tool_calls": [_call(form, 0), _call(form, 1)]}
    return _shows(template, [_ASKED, both, resulted(form), resulted(form, number=1)], (_FIRST, _SECOND))


def _takes_text_before(template: ChatTemplate, form: CallForm) -> bool:
    """In a whole exchange: a template that wants user and assistant to take turns says no at its end."""
    said: TemplateMessage = {"role": "assistant", "content": _TEXT}
    return _shows(template, [_ASKED, said, called(form), resulted(form), said, _ASKED], (_TEXT, _FIRST, _RESULT))


def _takes_results(template: ChatTemplate, form: CallForm | None) -> bool:
    """Where calls are shown, whether results are; elsewhere only if the role means something to the template: one that
    prints any role would print this one too, for a model that never saw it."""
    if form is not None:
        return _shows(template, [_ASKED, called(form), resulted(form)], (_RESULT,))
    dialogue = [_ASKED, {"role": "assistant", "content": _TEXT}]
    shown = _rendered(template, [*dialogue, resulted(CallForm())])
    if shown is None or _RESULT not in shown:
        return False
    stranger = _rendered(template, [*dialogue, {**resulted(CallForm()), "role": _STRANGER}])
    return stranger is None or stranger.replace(_STRANGER, "tool") != shown


def _reasoning_key(template: ChatTemplate) -> str | None:
    for key in _REASONING_KEYS:
        if _shows(template, [_ASKED, {"role": "assistant", "content": _TEXT, key: _THOUGHT}], (_TEXT, _THOUGHT)):
            return key
    return None


def _shows(
    template: ChatTemplate, messages: Sequence[TemplateMessage], wanted: Sequence[str], *, tools: bool = False
) -> bool:
    shown = _rendered(template, messages, tools=tools)
    return shown is not None and all(text in shown for text in wanted)


def _rendered(template: ChatTemplate, messages: Sequence[TemplateMessage], *, tools: bool = False) -> str | None:
    parameters = {"type": "object", "properties": {_KEY: {"type": "string", "description": _TEXT}}}
    tool = {"type": "function", "function": {"name": _TOOL, "description": _TEXT, "parameters": parameters}}
    try:
        return template.render(messages, tools=[tool] if tools else [])
    except TemplateRejected:
        return None
