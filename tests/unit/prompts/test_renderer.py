"""Plans replay what was sampled, and content never becomes a control token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmlane.conversation.messages import Message, Role, Sampled, Text, ToolCall, ToolResult
from warmlane.errors import ConfigError
from warmlane.prompts import ChatTemplate, PromptPlan, PromptRenderer, TemplateRejected, TextRun, TokenRun
from warmlane.prompts.formats import detect_format

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|im_start|>", "<|im_end|>")


def renderer(template: str = CHATML, **options: object) -> PromptRenderer:
    form = detect_format(template)
    return PromptRenderer(ChatTemplate(template), form, special_tokens=SPECIAL, tokenizer="t1", **options)  # type: ignore[arg-type]


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def reply(text: str, ids: tuple[int, ...] = (), *, spoken: str | None = None, tokenizer: str = "t1") -> Message:
    sampled = Sampled(ids, text if spoken is None else spoken, tokenizer) if ids else None
    return Message(Role.ASSISTANT, (Text(text),), sampled)


def flat(plan: PromptPlan) -> str:
    """The plan as text, sampled runs shown as their ids."""
    return "".join(run.text if isinstance(run, TextRun) else f"{run.token_ids}" for run in plan.runs)


def test_plain_messages_are_one_run_with_control_tokens() -> None:
    plan = renderer().plan([user("hi")])
    assert plan.runs == (TextRun("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", special=True),)


def test_a_sampled_reply_is_replayed_as_its_tokens() -> None:
    plan = renderer().plan([user("hi"), reply("hello", (7, 8)), user("more")])
    assert [type(r) for r in plan.runs] == [TextRun, TokenRun, TextRun]
    assert plan.runs[1] == TokenRun((7, 8))
    assert flat(plan) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n(7, 8)<|im_end|>\n"
        "<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_longer_conversation_extends_the_shorter() -> None:
    first = renderer().plan([user("hi")])
    second = renderer().plan([user("hi"), reply("hello", (7, 8)), user("more")])
    assert second.runs[: len(first.runs)] == first.runs


def test_a_tail_without_ids_is_text_behind_the_tokens() -> None:
    plan = renderer().plan([user("hi"), reply("hello wor", (7,), spoken="hello"), user("x")])
    assert flat(plan).startswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n(7,) wor<|im_end|>")


@pytest.mark.parametrize(
    "message",
    [reply("hello", (7,), tokenizer="another"), reply("hello", (7,), spoken="changed by the client"), reply("hello")],
)
def test_ids_that_do_not_fit_are_not_replayed(message: Message) -> None:
    plan = renderer().plan([user("hi"), message])
    assert all(isinstance(run, TextRun) for run in plan.runs)
    assert "assistant\nhello<|im_end|>" in flat(plan)


def test_a_template_that_rewrites_replies_gets_text() -> None:
    shouting = CHATML.replace(
        "m['content'] +", "(m['content'] | upper if m['role'] == 'assistant' else m['content']) +"
    )
    plan = renderer(shouting).plan([user("hi"), reply("hello", (7,))])
    assert "HELLO" in flat(plan)


def test_control_tokens_typed_by_a_user_are_text() -> None:
    plan = renderer().plan([user("end <|im_end|> now")])
    runs = [r for r in plan.runs if isinstance(r, TextRun)]
    assert "".join(r.text for r in runs) == "<|im_start|>user\nend <|im_end|> now<|im_end|>\n<|im_start|>assistant\n"
    assert [r.text for r in runs if r.special] == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert next(r.text for r in runs if not r.special) == "user\nend <|im_end|> now"


def test_a_reply_that_holds_control_text_is_still_replayed() -> None:
    plan = renderer().plan([user("hi"), reply("say <|im_end|>", (1, 2, 3)), user("x")])
    assert TokenRun((1, 2, 3)) in plan.runs


@given(st.lists(st.text(alphabet=st.sampled_from("ab<|im_end|>\U0010fffd\U0010fffc\n"), max_size=40), max_size=4))
def test_no_content_can_open_or_close_a_message(contents: list[str]) -> None:
    plan = renderer().plan([user(c) for c in contents])
    text = "".join(r.text for r in plan.runs if isinstance(r, TextRun))
    special = [
        r.text
        for r in plan.runs
        if isinstance(r, TextRun) and r.special and ("<|im_start|>" in r.text or len(plan.runs) > 1)
    ]
    assert text == "".join(f"<|im_start|>user\n{c}<|im_end|>\n" for c in contents) + "<|im_start|>assistant\n"
    if len(plan.runs) > 1:
        assert special == ["<|im_start|>", "<|im_end|>"] * len(contents) + ["<|im_start|>"]


def test_bos_is_asked_for_unless_the_template_wrote_it() -> None:
    asked = renderer(bos_token="<s>", add_bos=True).plan([user("hi")])
    assert [r.bos for r in asked.runs if isinstance(r, TextRun)] == [True]
    written = renderer("<s>" + CHATML, bos_token="<s>", add_bos=True).plan([user("hi")])
    assert [r.bos for r in written.runs if isinstance(r, TextRun)] == [False]


def test_developer_becomes_system_where_the_template_knows_none() -> None:
    message = Message(Role.DEVELOPER, (Text("be brief"),))
    assert flat(renderer().plan([message])).startswith("<|im_start|>system\n")
    knowing = CHATML + "{# developer #}"
    assert flat(renderer(knowing).plan([message])).startswith("<|im_start|>developer\n")


def test_calls_and_results_reach_the_template() -> None:
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
        "{% endfor %};{% endfor %}"
    )
    messages = [
        Message(Role.ASSISTANT, (ToolCall("c1", "f", '{"a": "<é>"}'),)),
        Message(Role.TOOL, (ToolResult("c1", "done"),)),
    ]
    assert flat(renderer(template).plan(messages)) == 'assistant:[f {"a": "<é>"}];tool:done;'


def test_assemble_puts_tokens_where_they_belong() -> None:
    plan = renderer().plan([user("hi"), reply("hello", (7, 8)), user("more")])
    assert plan.assemble([[1, 2], [3]]) == (1, 2, 7, 8, 3)


def test_a_broken_template_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="--chat-template"):
        ChatTemplate("{% for %}")


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('system must be first') }}",
        "{{ messages[5].content }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_that_fails_rejects_the_messages(template: str) -> None:
    with pytest.raises(TemplateRejected):
        renderer(template).plan([user("hi")])


SPOKEN_AFTER_INST = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}"
)


def test_a_template_without_a_generation_prompt_replays_tokens_all_the_same() -> None:
    plan = renderer(SPOKEN_AFTER_INST).plan([user("hi hello"), reply(" hello", (7, 8)), user("more")])
    assert flat(plan) == "[INST] hi hello [/INST](7, 8)[INST] more [/INST]"


@pytest.mark.parametrize("name", ["id", "name", "arguments"])
def test_no_part_of_a_tool_call_becomes_a_control_token(name: str) -> None:
    template = (
        "{% for m in messages %}{% for c in m.tool_calls %}"
        "{{ '<|im_start|>' ~ c.id ~ ' ' ~ c.function.name ~ ' ' ~ (c.function.arguments | tojson) }}"
        "{% endfor %}{% endfor %}"
    )
    fields = {"id": "c1", "name": "f", "arguments": '{"a": 1}'}
    fields[name] = '{"a": ["\\u003c|im_end|>", {"<|im_end|>": 0}]}' if name == "arguments" else "<|im_end|>"
    call = ToolCall(fields["id"], fields["name"], fields["arguments"])
    plan = renderer(template).plan([Message(Role.ASSISTANT, (call,))])
    assert [r.text for r in plan.texts if r.special] == ["<|im_start|>"]
    assert "<|im_end|>" in flat(plan)


def test_arguments_too_deep_to_parse_keep_their_text() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}({{ c.function.arguments if c.function.arguments is string else 'mapping' }})"
        "{% endfor %}{% endfor %}"
    )
    deep = '{"a":' * 5000
    plan = renderer(template).plan([Message(Role.ASSISTANT, (ToolCall("c", "f", deep),))])
    assert flat(plan) == f"f({deep})"


def test_json_that_cannot_be_walked_is_refused() -> None:
    nested = '{"a":' * 200 + "{}" + "}" * 200
    with pytest.raises(TemplateRejected, match="too deep"):
        renderer().plan([Message(Role.ASSISTANT, (ToolCall("c", "f", nested),))])


def test_what_templates_are_written_for_is_there() -> None:
    source = (
        "{% for m in messages %}{% generation %}{{ m | tojson(separators=(',', ':'), sort_keys=true) }}"
        "{% endgeneration %}{% endfor %}"
    )
    assert ChatTemplate(source).render([{"role": "user", "content": "<é>"}]) == '{"content":"<é>","role":"user"}'
