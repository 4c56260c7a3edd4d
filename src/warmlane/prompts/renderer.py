"""Messages to a prompt plan that replays what was sampled.

Where an assistant message carries its sampled tokens and the template repeats it (`replies` says when), the plan holds
those tokens instead of the text. Where the template or the client rewrote the message, its text is tokenized anew, and
reuse ends at the first token that differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from warmlane.conversation.messages import Message, Role, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Thinking, Tool
from warmlane.prompts.control_text import ControlText
from warmlane.prompts.formats.base import OutputFormat
from warmlane.prompts.guarding import Safe, contents, guarded_messages, guarded_tools, mapping_or_text
from warmlane.prompts.marks import marks_of
from warmlane.prompts.plan import PromptPlan, TextRun, TokenRun
from warmlane.prompts.replies import Found, ReplyFinder
from warmlane.prompts.shape import shape_of, shaped
from warmlane.prompts.skills import CallForm, skills_of
from warmlane.prompts.template import ChatTemplate
from warmlane.prompts.tool_text import call_names, fitted, result_text

_AS_THE_TEMPLATE = Thinking()


class PromptRenderer:
    """One model's way from messages to a plan. `form` is how the model writes; `tokenizer` is the fingerprint sampled
    ids must have been made with."""

    def __init__(
        self,
        template: ChatTemplate,
        form: OutputFormat,
        *,
        special_tokens: Sequence[str],
        tokenizer: str,
        bos_token: str = "",
        add_bos: bool = False,
    ) -> None:
        self._template = template
        self._form = form
        self._skills = skills_of(template)
        self._shape = shape_of(template)
        self._control = ControlText(special_tokens)
        marks = marks_of(template, self._control, self._skills.calls)
        skills = self._skills
        drops_text = skills.calls is not None and not (skills.text_with_calls or skills.text_before_calls)
        self._finder = ReplyFinder(marks, self._control, form, tokenizer=tokenizer, drops_text=drops_text)
        self._bos_token = bos_token
        self._add_bos = add_bos

    def plan(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), thinking: Thinking = _AS_THE_TEMPLATE
    ) -> PromptPlan:
        """The prompt that asks for the next assistant message. Raises `TemplateRejected`."""
        tools = tuple(tools)
        guard = self._control.pick_guard((*contents(messages, tools), thinking.effort or ""))

        def safe(text: str) -> str:
            return self._control.guard(text, guard)

        safe_tools = guarded_tools(tools, safe)
        safe_messages = guarded_messages(messages, safe)
        shown = shaped(fitted(safe_messages, safe_tools, self._skills, self._form), self._shape)
        rendered = self._template.render(
            self._template_messages(shown, call_names(safe_messages)),
            tools=[_template_tool(tool) for tool in safe_tools] if self._skills.tools else [],
            variables=_variables(thinking, safe),
        )
        originals = {id(message.sampled): message for message in messages if message.sampled is not None}
        found = self._finder.find(rendered, shown, originals, tools, guard)
        wants_bos = self._add_bos and not (self._bos_token and rendered.startswith(self._bos_token))
        return PromptPlan(
            runs=tuple(self._runs(rendered, found, guard, bos=wants_bos)),
            text=rendered.replace(guard, ""),
            opening=self._finder.opening(rendered).replace(guard, ""),
        )

    def _runs(self, rendered: str, replies: Iterator[Found], guard: str, *, bos: bool) -> Iterator[TextRun | TokenRun]:
        position = 0
        for reply in replies:
            yield from self._control.runs(rendered[position : reply.start], guard, bos=bos, joined=position > 0)
            bos = False
            yield TokenRun(reply.token_ids)
            position = reply.end
        yield from self._control.runs(rendered[position:], guard, bos=bos, joined=position > 0)

    def _template_messages(self, messages: Sequence[Message], names: Mapping[str, str]) -> list[Mapping[str, object]]:
        form = self._skills.calls or CallForm()
        return [self._template_message(message, names, form) for message in messages]

    def _template_message(self, message: Message, names: Mapping[str, str], form: CallForm) -> Mapping[str, object]:
        role = message.role
        if role is Role.DEVELOPER and not self._template.knows_developer_role:
            role = Role.SYSTEM
        content = _content(message)
        shown: dict[str, object] = {"role": role.value, "content": content}
        if message.reasoning and self._skills.reasoning_key is not None:
            shown[self._skills.reasoning_key] = message.reasoning
        calls = message.tool_calls
        if calls:
            shown["tool_calls"] = [_template_call(call, form) for call in calls]
            if form.null_content and not content:
                shown["content"] = None
        if role is Role.TOOL:
            call_id = next((p.call_id for p in message.parts if isinstance(p, ToolResult)), "")
            shown |= {"tool_call_id": _template_id(call_id, form), "name": names.get(call_id, "")}
        return shown


def _content(message: Message) -> str:
    """Text and results, joined."""
    return "".join(
        result_text(part) if isinstance(part, ToolResult) else part.text
        for part in message.parts
        if isinstance(part, Text | ToolResult)
    )


def _template_tool(tool: Tool) -> dict[str, object]:
    parameters = mapping_or_text(tool.parameters)
    function = {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": {} if isinstance(parameters, str) else parameters,
    }
    return {"type": "function", "function": function}


def _template_call(call: ToolCall, form: CallForm) -> dict[str, object]:
    """Templates print arguments as a mapping where they are one; a malformed call keeps its text."""
    arguments = call.arguments if form.text_arguments else mapping_or_text(call.arguments)
    return {
        "id": _template_id(call.call_id, form),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _template_id(call_id: str, form: CallForm) -> str:
    if not form.short_ids or (len(call_id) == 9 and call_id.isalnum()):
        return call_id
    return hashlib.blake2b(call_id.encode("utf-8", "replace"), digest_size=5).hexdigest()[:9]


def _variables(thinking: Thinking, safe: Safe) -> dict[str, object]:
    """What templates read to switch reasoning: there is no one name for it."""
    variables: dict[str, object] = {}
    if thinking.enabled is not None:
        variables |= {"enable_thinking": thinking.enabled, "thinking": thinking.enabled}
    if thinking.effort is not None:
        variables["reasoning_effort"] = safe(thinking.effort)
    if thinking.budget_tokens is not None:
        variables["thinking_budget"] = thinking.budget_tokens
    return variables
