"""A template is asked once what it shows of tools, calls, results and reasoning, and what it writes around a reply."""

from __future__ import annotations

import pytest

from support.templates import LLAMA, MISTRAL, QWEN, R1, SMOL, SPECIAL, TEXT_ARGUMENTS
from warmlane.engine.backends.bytes_vocab import CHAT_TEMPLATE
from warmlane.prompts import ChatTemplate
from warmlane.prompts.control_text import ControlText
from warmlane.prompts.marks import ReplyMarks, marks_of
from warmlane.prompts.skills import CallForm, Skills, skills_of

NOTHING = Skills(
    tools=False,
    calls=None,
    several_calls=False,
    text_with_calls=False,
    text_before_calls=False,
    results=False,
    reasoning_key=None,
)


@pytest.mark.parametrize(
    ("template", "skills"),
    [
        (QWEN, Skills()),
        (CHAT_TEMPLATE, Skills()),
        (LLAMA, Skills(several_calls=False, text_with_calls=False, reasoning_key=None)),
        (
            MISTRAL,
            Skills(calls=CallForm(short_ids=True), text_with_calls=False, text_before_calls=False, reasoning_key=None),
        ),
        (SMOL, NOTHING),
        (R1, NOTHING),
        (
            TEXT_ARGUMENTS,
            Skills(
                tools=False,
                calls=CallForm(text_arguments=True, null_content=True),
                text_with_calls=False,
                reasoning_key=None,
            ),
        ),
    ],
    ids=["qwen", "simulated", "llama", "mistral", "smol", "r1", "text-arguments"],
)
def test_what_a_template_shows(template: str, skills: Skills) -> None:
    assert skills_of(ChatTemplate(template, bos_token="<s>", eos_token="</s>")) == skills


@pytest.mark.parametrize(
    ("field", "key"), [("reasoning_content", "reasoning_content"), ("thinking", "thinking"), ("thoughts", None)]
)
def test_where_it_reads_reasoning_from(field: str, key: str | None) -> None:
    source = "{% for m in messages %}{{ m." + field + " }}{{ m.content }}{% endfor %}"
    assert skills_of(ChatTemplate(source)).reasoning_key == key


def test_a_role_for_results_that_means_something_is_used_even_without_calls() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'tool' %}(result: {{ m.content }})"
        "{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
    )
    assert skills_of(ChatTemplate(source)).results


def test_a_mapping_is_not_printed_as_python_prints_one() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}{{ c.function.arguments }}{% endfor %}{% endfor %}"
    )
    assert skills_of(ChatTemplate(source)).calls == CallForm(text_arguments=True)


@pytest.mark.parametrize(
    ("template", "marks"),
    [
        (QWEN, ReplyMarks(("<|im_start|>assistant\n",), ("<think>\n\n</think>\n\n", ""), "<|im_end|>", certain=True)),
        (SMOL, ReplyMarks(("<|im_start|>assistant\n",), ("",), "<|im_end|>", certain=True)),
        (R1, ReplyMarks(("<|Assistant|>",), ("<think>\n", ""), "<|end|>", certain=True)),
        (MISTRAL, ReplyMarks(("[/INST]", "[/TOOL_RESULTS]"), ("",), "</s>", certain=True)),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", ReplyMarks(("\n",), ("",))),
    ],
    ids=["qwen", "smol", "r1", "mistral", "plain"],
)
def test_what_a_template_writes_around_a_reply(template: str, marks: ReplyMarks) -> None:
    made = ChatTemplate(template, bos_token="<s>", eos_token="</s>")
    found = marks_of(made, ControlText(SPECIAL), skills_of(made).calls)
    assert found == marks
