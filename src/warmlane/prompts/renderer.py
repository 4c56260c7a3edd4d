"""Messages to a prompt plan that replays what was sampled.

Where an assistant message carries its sampled tokens and the template repeats its text unchanged behind what opens a
reply, the plan holds those tokens instead of the text. Where the template or the client rewrote the message, its text
is tokenized anew, and reuse ends at the first token that differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from warmlane.conversation.messages import Message, Role
from warmlane.prompts.control_text import ControlText
from warmlane.prompts.plan import PromptPlan, TextRun, TokenRun
from warmlane.prompts.shape import shape_of, shaped
from warmlane.prompts.template import ChatTemplate


class PromptRenderer:
    """One model's way from messages to a plan. `tokenizer` is the fingerprint sampled ids must have been made with."""

    def __init__(
        self,
        template: ChatTemplate,
        *,
        special_tokens: Sequence[str],
        tokenizer: str,
        bos_token: str = "",
        add_bos: bool = False,
    ) -> None:
        self._template = template
        self._shape = shape_of(template)
        self._control = ControlText(special_tokens)
        self._tokenizer = tokenizer
        self._bos_token = bos_token
        self._add_bos = add_bos

    def plan(self, messages: Sequence[Message]) -> PromptPlan:
        """The prompt that asks for the next assistant message. Raises `TemplateRejected`."""
        messages = shaped(messages, self._shape)
        guard = self._control.pick_guard(_contents(messages))
        rendered = self._template.render([self._as_template_message(m, guard) for m in messages])
        wants_bos = self._add_bos and not (self._bos_token and rendered.startswith(self._bos_token))
        runs = tuple(self._runs(rendered, messages, guard, bos=wants_bos))
        return PromptPlan(runs, rendered.replace(guard, ""))

    def _runs(
        self, rendered: str, messages: Sequence[Message], guard: str, *, bos: bool
    ) -> Iterator[TextRun | TokenRun]:
        opening = self._template.reply_opening
        position = 0
        for message in messages:
            sampled = message.sampled
            if sampled is None or not sampled.token_ids or sampled.tokenizer != self._tokenizer or not opening:
                continue
            spoken = self._control.guard(sampled.text, guard)
            at = rendered.find(opening + spoken, position)
            if at < 0:
                continue
            start = at + len(opening)
            yield from self._control.runs(rendered[position:start], guard, bos=bos)
            bos = False
            yield TokenRun(sampled.token_ids)
            position = start + len(spoken)
        yield from self._control.runs(rendered[position:], guard, bos=bos)

    def _as_template_message(self, message: Message, guard: str) -> dict[str, object]:
        def safe(text: str) -> str:
            return self._control.guard(text, guard)

        role = message.role
        if role is Role.DEVELOPER and not self._template.knows_developer_role:
            role = Role.SYSTEM
        shown: dict[str, object] = {"role": role.value, "content": safe(message.text)}
        if message.reasoning:
            shown["reasoning_content"] = safe(message.reasoning)
        if message.tool_calls:
            shown["tool_calls"] = [
                {
                    "id": safe(call.call_id),
                    "type": "function",
                    "function": {"name": safe(call.name), "arguments": _guarded(_arguments(call.arguments), safe)},
                }
                for call in message.tool_calls
            ]
        return shown


def _arguments(text: str) -> object:
    """Templates print arguments as a mapping where they are one; a malformed call keeps its text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _guarded(value: object, safe: Callable[[str], str]) -> object:
    """Guarded as parsed, since an escape such as `\\u003c` may spell part of a control token's text."""
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, dict):
        return {safe(str(key)): _guarded(item, safe) for key, item in value.items()}
    return [_guarded(item, safe) for item in value] if isinstance(value, list) else value


def _contents(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        yield message.text
        yield message.reasoning
        for call in message.tool_calls:
            yield call.call_id
            yield call.name
            yield call.arguments
            yield json.dumps(_arguments(call.arguments), ensure_ascii=False)
