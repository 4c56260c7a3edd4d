"""A model's chat template, run in jinja2's sandbox.

The environment is the one templates are written for (the conventions of Hugging Face's `apply_chat_template`: blocks
trimmed, loop controls, a `tojson` that does not escape HTML, `raise_exception`, `strftime_now`, `{% generation %}`),
minus everything a template from a downloaded file should not be able to reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from warmlane.errors import ConfigError, WarmlaneError

TemplateMessage = Mapping[str, object]
"""One message as templates see it: `role`, `content`, and where there is any the reasoning, `tool_calls`, and for a
result `tool_call_id` and `name`."""

TemplateTool = Mapping[str, object]
"""A tool as templates see it: `type` and `function`, with `name`, `description` and `parameters`."""


class TemplateRejected(WarmlaneError):
    """The template refused these messages, or failed on them. The message is the template's own."""


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks what training counts as the model's own; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 (read by jinja2 as it stands)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: object,
    indent: int | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRejected(message)


class ChatTemplate:
    """A compiled template. Raises `ConfigError` if its source is not valid Jinja."""

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols, _GenerationBlock],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigError(
                f"The chat template is not valid Jinja: {error}. Give another with --chat-template."
            ) from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self.knows_developer_role = "developer" in source
        self.knows_thinking_switch = "thinking" in source
        self.knows_effort = "reasoning_effort" in source
        self.mentions_reasoning = any(word in source.lower() for word in ("think", "reasoning", "<|channel|>"))

    def render(
        self,
        messages: Sequence[TemplateMessage],
        *,
        tools: Sequence[TemplateTool] = (),
        variables: Mapping[str, object] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt's text; `variables` are further ones some templates read.

        Raises `TemplateRejected` if the template refuses the messages' shape.
        """
        try:
            return self._template.render(
                **(variables or {}),
                messages=list(messages),
                tools=list(tools) or None,
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
            )
        except TemplateRejected:
            raise
        except Exception as error:  # a template is foreign code: whatever it raises, the request is what it choked on
            raise TemplateRejected(f"{type(error).__name__}: {error}") from error
