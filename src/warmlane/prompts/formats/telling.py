"""What a model is told of tools by a server whose chat template does not tell it: what they are, and how to call one.

The form is the one Nous Research's Hermes models made common; instruction-tuned models of other families know it too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from warmlane.conversation.messages import ToolCall
from warmlane.conversation.tools import Tool
from warmlane.prompts.formats.render import written_calls
from warmlane.prompts.formats.writing import Arguments, Writing

_EXAMPLE = ToolCall("", "<function-name>", "<args-json-object>")


def instructions(writing: Writing, tools: Sequence[Tool]) -> str:
    """For the system prompt; "" without tools."""
    if not tools:
        return ""
    listed = "\n".join(_described(tool) for tool in tools)
    example = (
        _EXAMPLE if writing.arguments is Arguments.JSON else ToolCall("", "function_name", '{"argument": "value"}')
    )
    return (
        "# Tools\n\n"
        "You may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        "For each function call, write exactly this, with the function's name and its arguments:\n"
        f"{written_calls(writing, [example])}\n\n"
        "Results come back within <tool_response></tool_response> XML tags."
    )


def written_result(text: str) -> str:
    """A result as a message of the user shows it."""
    return f"<tool_response>\n{text}\n</tool_response>"


def _described(tool: Tool) -> str:
    try:
        parameters = json.loads(tool.parameters)
    except (ValueError, RecursionError):
        parameters = {}
    described = (
        "" if tool.description is None else f'"description": {json.dumps(tool.description, ensure_ascii=False)}, '
    )
    return (
        f'{{"type": "function", "function": {{"name": {json.dumps(tool.name, ensure_ascii=False)}, {described}'
        f'"parameters": {json.dumps(parameters, ensure_ascii=False)}}}}}'
    )
