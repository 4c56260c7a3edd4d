from __future__ import annotations

import json

import pytest

from support.replies import told, tool
from warmlane.conversation.messages import ToolCall
from warmlane.conversation.tools import ToolChoice
from warmlane.errors import ConfigError
from warmlane.prompts.formats import detect_format, format_named, format_names

_TEMPLATES = {
    "plain": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "think": "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}",
    "hermes": "{{ '<tool_call>\\n{\"name\": \"' + call.name + '\", \"arguments\": ' }}</tool_call>",
    "qwen-xml": "<tool_call>\\n<function={{ name }}>\\n<parameter={{ key }}>\\n</parameter></function></tool_call>",
    "gpt-oss": "<|start|>assistant<|channel|>analysis<|message|>{{ thinking }}<|end|>",
    "deepseek-v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>x\\n```json\\n",
    "deepseek-v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>",
    "deepseek-v3.2": '<｜DSML｜function_calls>\\n<｜DSML｜invoke name="',
    "deepseek-v4": '<｜DSML｜tool_calls>\\n<｜DSML｜invoke name="',
    "deepseek-v4.1": '<｜DSML｜ calls>\\n<｜DSML｜ invoke name="',
    "kimi-k2": "<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>",
    "kimi-k3": "<|open|>call tool=\"{{ name }}\"<|sep|>",
    "glm-4.5": "<tool_call>{{ name }}\\n<arg_key>{{ k }}</arg_key>\\n<arg_value>{{ v }}</arg_value>",
    "glm-4.7": "<tool_call>{{ name }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>",
    "llama": '{%- if builtin_tools %}<|python_tag|>{% endif %}{{ \'{"name": "\' }}"parameters"',
    "llama-pythonic": "<|header_start|>assistant<|header_end|><|python_start|>",
    "mistral-v3": '[TOOL_CALLS] [{"name": {{ name }}, "arguments": {{ arguments }}}]',
    "mistral": "[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}",
    "gemma4": "<|tool_call>call:{{ name }}{<|\"|>}<tool_call|>",
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), _TEMPLATES.items(), ids=_TEMPLATES.keys())
def test_a_template_tells_its_family(name: str, source: str) -> None:
    assert detect_format(source).name == name


def test_every_family_is_told_by_some_template() -> None:
    assert set(_TEMPLATES) == set(format_names()), "a format without a test of its detection"


def test_formats_have_names_and_aliases() -> None:
    assert [format_named(name).name for name in format_names()] == list(format_names())
    assert format_named("qwen3-hermes") is format_named("hermes")
    with pytest.raises(ConfigError, match=r"no output format 'klingon'.*hermes.*gemma4"):
        format_named("klingon")


def test_only_plain_text_needs_no_control_tokens_spelled() -> None:
    assert [name for name in format_names() if not format_named(name).special_text] == ["plain"]


def test_instructions_show_the_tools_and_a_call_that_is_read_as_one() -> None:
    get = tool("get_weather", {"city": {"type": "string"}})
    for name in format_names():
        form = format_named(name)
        text = form.instructions([get], ToolChoice())
        assert json.dumps(json.loads(get.parameters)) in text
        assert form.instructions([], ToolChoice()) == ""
        call = form.written_calls([ToolCall("", "get_weather", '{"city": "Oslo"}')])
        assert told(form, [call], [get]).named == [("get_weather", {"city": "Oslo"})]


def test_the_example_of_a_call_is_in_the_form_that_is_read() -> None:
    text = format_named("plain").instructions([tool("now")], ToolChoice())
    assert '<tool_call>\n{"name": "<function-name>", "arguments": <args-json-object>}\n</tool_call>' in text


def test_results_are_marked() -> None:
    assert format_named("plain").written_result("get", "12 °C") == "<tool_response>\n12 °C\n</tool_response>"
