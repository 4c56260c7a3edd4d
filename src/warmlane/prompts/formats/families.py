"""The formats, by name, and which of them a chat template asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from warmlane.conversation.messages import ToolCall
from warmlane.conversation.tools import TextFormat, Tool, ToolChoice
from warmlane.errors import ConfigError
from warmlane.prompts.formats import layouts, telling, writing
from warmlane.prompts.formats.base import OutputFormat, OutputParser, ThoughtMarks
from warmlane.prompts.formats.describe import Layout, Messages
from warmlane.prompts.formats.lark import call_openers, reply_grammar
from warmlane.prompts.formats.parser import ReplyParser
from warmlane.prompts.formats.render import written_calls
from warmlane.prompts.formats.writing import Writing


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """An `OutputFormat`: how its replies are laid out, and how they are written."""

    name: str
    layout: Layout
    writing: Writing
    special_text: bool = True

    @property
    def text_opening(self) -> str:
        return self.writing.text[0]

    def parser(
        self,
        tools: Sequence[Tool],
        *,
        new_call_id: Callable[[], str],
        opening: str = "",
        whole_calls: bool = False,
    ) -> OutputParser:
        inside = self.opens_thought(opening)
        return ReplyParser(self.layout, tools, new_call_id=new_call_id, inside=inside, whole_calls=whole_calls)

    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, text_format: TextFormat | None, *, opening: str = ""
    ) -> str | None:
        inside = self.opens_thought(opening)
        return reply_grammar(self.layout, self.writing, tools, choice, text_format, opening=opening, inside=inside)

    def instructions(self, tools: Sequence[Tool], choice: ToolChoice) -> str:
        return telling.instructions(self.writing, tools)

    def written_calls(self, calls: Sequence[ToolCall]) -> str:
        return written_calls(self.writing, calls)

    def written_result(self, name: str, text: str) -> str:
        return telling.written_result(text)

    def thought_marks(self, *, calls: bool) -> ThoughtMarks | None:
        layout, written = self.layout, self.writing.thought
        if written is None:
            return None
        if isinstance(layout, Messages):
            channels = [f"<|channel|>{name}{layout.body}" for name in layout.thoughts]
            behind = [layout.start + layout.role + channel for channel in channels]
            return ThoughtMarks((*channels, *behind), layout.ends, written[1])
        if layout.thought is None:
            return None
        openers = call_openers(layout) if calls and layout.thought.calls_end_it else ()
        opens = tuple(mark.strip() for mark in layout.thought.opens)
        return ThoughtMarks(opens, (*layout.thought.closes, *openers), written[1])

    def opens_thought(self, opening: str) -> bool:
        if isinstance(self.layout, Messages):
            layout = self.layout
            return opening.endswith(tuple(f"<|channel|>{name}{layout.body}" for name in layout.thoughts))
        thought = self.layout.thought
        if thought is None:
            return False
        opened = max(opening.rfind(mark) for mark in thought.opens)
        return opened > max(opening.rfind(mark) for mark in thought.closes)


def _family(name: str, layout: Layout, how: Writing, *, special_text: bool = True) -> Family:
    return Family(name=name, layout=layout, writing=how, special_text=special_text)


PLAIN = _family("plain", layouts.PLAIN, replace(writing.HERMES, thought=None), special_text=False)
THINK = _family("think", layouts.HERMES, writing.HERMES)

_FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        PLAIN,
        THINK,
        _family("hermes", layouts.HERMES, writing.HERMES),
        _family("qwen-xml", layouts.QWEN_XML, writing.QWEN_XML),
        _family("gpt-oss", layouts.HARMONY, writing.HARMONY),
        _family("deepseek-v3", layouts.DEEPSEEK, writing.DEEPSEEK_V3),
        _family("deepseek-v3.1", layouts.DEEPSEEK, writing.DEEPSEEK_V31),
        _family("deepseek-v3.2", layouts.DEEPSEEK, writing.DEEPSEEK_V32),
        _family("deepseek-v4", layouts.DEEPSEEK, writing.DEEPSEEK_V4),
        _family("deepseek-v4.1", layouts.DEEPSEEK, writing.DEEPSEEK_V41),
        _family("kimi-k2", layouts.KIMI, writing.KIMI_K2),
        _family("kimi-k3", layouts.KIMI, writing.KIMI_K3),
        _family("glm-4.5", layouts.GLM, writing.GLM),
        _family("glm-4.7", layouts.GLM, writing.GLM_COMPACT),
        _family("llama", layouts.LLAMA, writing.LLAMA),
        _family("llama-pythonic", layouts.LLAMA, writing.LLAMA_PYTHONIC),
        _family("mistral-v3", layouts.MISTRAL, writing.MISTRAL_V3),
        _family("mistral", layouts.MISTRAL, writing.MISTRAL),
        _family("gemma4", layouts.GEMMA, writing.GEMMA),
    )
}
_ALIASES = {
    "qwen3-hermes": "hermes",
    "qwen3-xml": "qwen-xml",
    "deepseek": "deepseek-v3.1",
    "kimi": "kimi-k2",
    "glm": "glm-4.7",
}

_SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|channel|>", "<|message|>"), "gpt-oss"),
    (("<|open|>", "<|sep|>"), "kimi-k3"),
    (("<|tool_call_argument_begin|>",), "kimi-k2"),
    (("｜DSML｜ ",), "deepseek-v4.1"),
    (("｜DSML｜", " calls>"), "deepseek-v4.1"),
    (("｜DSML｜", "tool_calls>"), "deepseek-v4"),
    (("｜DSML｜",), "deepseek-v3.2"),
    (("<｜tool▁calls▁begin｜>", "```json"), "deepseek-v3"),
    (("<｜tool▁calls▁begin｜>",), "deepseek-v3.1"),
    (("<|tool_call>", '<|"|>'), "gemma4"),
    (("[TOOL_CALLS]", "[ARGS]"), "mistral"),
    (("[TOOL_CALLS]",), "mistral-v3"),
    (("<arg_key>", "</arg_key>\\n<arg_value>"), "glm-4.5"),
    (("<arg_key>", "</arg_key>\n<arg_value>"), "glm-4.5"),
    (("<arg_key>",), "glm-4.7"),
    (("<function=", "<parameter="), "qwen-xml"),
    (("<tool_call>",), "hermes"),
    (("<|python_start|>",), "llama-pythonic"),
    (("<|header_start|>",), "llama-pythonic"),
    (("<|python_tag|>",), "llama"),
    (("<|start_header_id|>", '"parameters"'), "llama"),
)
"""What in a template's source tells a family, the surest first."""


def format_names() -> tuple[str, ...]:
    """What `format_named` knows, aliases aside."""
    return tuple(_FAMILIES)


def format_named(name: str) -> OutputFormat:
    """The format of that name. Raises `ConfigError`, which lists the names."""
    family = _FAMILIES.get(_ALIASES.get(name, name))
    if family is None:
        raise ConfigError(f"There is no output format {name!r}. There are: {', '.join(_FAMILIES)}.")
    return family


def detect_format(template_source: str) -> OutputFormat:
    """The format a chat template's source asks for.

    One that knows no tools gets the hermes form for them, which an instruction-tuned model can be told in its system
    prompt (`OutputFormat.instructions`); reasoning is told apart if the template mentions `<think>`.
    """
    for signs, name in _SIGNS:
        if all(sign in template_source for sign in signs):
            return _FAMILIES[name]
    return THINK if "<think>" in template_source else PLAIN
