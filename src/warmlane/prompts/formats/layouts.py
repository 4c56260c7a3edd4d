"""How the families of models lay out their replies, as far as reading goes. Each accepts all spellings its family is
known to write; which one is written is told by `writing`.

Sources: the models' chat templates and encoders, and the fixtures of the PyPI package `canitoolcall` 0.1.1.
"""

from __future__ import annotations

import re

from warmlane.prompts.formats.describe import (
    Call,
    Head,
    JsonArguments,
    JsonCall,
    LooseObject,
    Messages,
    Parameters,
    PythonCalls,
    Reply,
    Section,
    Thought,
)
from warmlane.prompts.formats.source import Mark

_TOOL_NAME = r"[\w.\-:/]+"


def _growing(text: str, then: str = "") -> str:
    """A pattern of every beginning of `text`, and of all of it followed by `then`."""
    pattern = re.escape(text[-1]) + then
    for char in reversed(text[:-1]):
        pattern = f"{re.escape(char)}(?:{pattern})?"
    return f"(?:{pattern})?"


_THINK = Thought(opens=("<think>",), closes=("</think>",), trim=True)

_HERMES_CALL = Call(opener=Mark("<tool_call>"), body=JsonCall(call_id="id"), close=("</tool_call>",))

PLAIN = Reply(calls=(_HERMES_CALL,))
HERMES = Reply(thought=_THINK, calls=(_HERMES_CALL,), trim=True)

_QWEN_PARAMETERS = Parameters(
    head=Head(start=("<parameter=",), ends=(">",), pattern=re.compile(r"(?P<key>[^<>\n]+)")),
    values=(
        Mark("\n</parameter>", then=("<parameter=", "</function>")),
        Mark("</parameter>", then=("<parameter=", "</function>")),
        Mark("\n<parameter=", keep=len("<parameter=")),
        Mark("\n</function>", then=("</tool_call>",), keep=len("</function>")),
    ),
    newline=True,
    close=("</function>",),
)
_QWEN_NAME = re.compile(rf"\s*(?:<function=)?(?P<name>{_TOOL_NAME})")

QWEN_XML = Reply(
    thought=Thought(opens=("<think>",), closes=("</think>",), trim=True, calls_end_it=True),
    calls=(
        Call(
            opener=Mark("<tool_call>", then=("<function=",)),
            head=Head(ends=(">",), pattern=_QWEN_NAME),
            body=_QWEN_PARAMETERS,
            close=("</tool_call>",),
        ),
        Call(
            opener=Mark("<function="),
            head=Head(ends=(">",), pattern=_QWEN_NAME, viable=re.compile(rf"(?:{_TOOL_NAME})?")),
            body=_QWEN_PARAMETERS,
            close=("</tool_call>",),
            known=True,
        ),
    ),
    trim=True,
)

GLM = Reply(
    thought=_THINK,
    calls=(
        Call(
            opener=Mark("<tool_call>"),
            head=Head(
                ends=("<arg_key>", "</tool_call>"),
                keep_end=True,
                pattern=re.compile(rf"\s*(?P<name>{_TOOL_NAME})\s*"),
                viable=re.compile(rf"\s*(?:{_TOOL_NAME})?\s*"),
            ),
            body=Parameters(
                head=Head(
                    start=("<arg_key>",),
                    ends=("<arg_value>",),
                    pattern=re.compile(r"\s*(?P<key>[^<>]+?)\s*</arg_key>\s*"),
                ),
                values=(
                    Mark("</arg_value>", then=("<arg_key>", "</tool_call>")),
                    Mark("</tool_call>", then=("<tool_call>",), at_end=True, keep=len("</tool_call>")),
                ),
                close=("</tool_call>",),
            ),
        ),
    ),
    trim=True,
)

_DEEPSEEK_JSON = Call(
    opener=Mark("<｜tool▁call▁begin｜>"),
    head=Head(
        start=("<｜tool▁call▁begin｜>",),
        ends=("{",),
        keep_end=True,
        pattern=re.compile(r"(?:function<｜tool▁sep｜>)?(?P<name>[^<{\n]+?)(?:<｜tool▁sep｜>|\n```json)\s*"),
    ),
    body=JsonArguments(),
    close=("\n```<｜tool▁call▁end｜>", "```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"),
)


def _dsml(space: str, names: tuple[str, ...]) -> Section:
    """DeepSeek's markup language since V3.2; V4.1 writes a space after its token."""
    dsml = f"｜DSML｜{space}"
    parameter, close = f"<{dsml}parameter", f"</{dsml}invoke>"
    call = Call(
        head=Head(
            start=(f"<{dsml}invoke",),
            ends=(">",),
            pattern=re.compile(r'\s+name="(?P<name>[^"]+)"\s*(?P<empty>/)?'),
        ),
        body=Parameters(
            head=Head(
                start=(parameter,),
                ends=(">",),
                pattern=re.compile(r'\s+name="(?P<key>[^"]*)"(?:\s+string="(?P<kind>true|false)")?\s*'),
            ),
            values=(Mark(f"</{dsml}parameter>", then=(parameter, close)),),
            close=(close,),
        ),
    )
    return Section(
        opener=Mark(f"<{dsml}{names[0]}>", then=(f"<{dsml}invoke",)),
        calls=(call,),
        close=tuple(f"</{dsml}{name}>" for name in names),
    )


DEEPSEEK = Reply(
    thought=_THINK,
    calls=(_DEEPSEEK_JSON,),
    sections=(
        Section(
            opener=Mark("<｜tool▁calls▁begin｜>", then=("<｜tool▁call▁begin｜>",)),
            calls=(_DEEPSEEK_JSON,),
            close=("<｜tool▁calls▁end｜>",),
        ),
        _dsml("", ("function_calls",)),
        _dsml("", ("tool_calls",)),
        _dsml(" ", ("calls",)),
    ),
    trim=True,
)

_KIMI_JSON = Call(
    opener=Mark("<|tool_call_begin|>"),
    head=Head(
        start=("<|tool_call_begin|>",),
        ends=("<|tool_call_argument_begin|>",),
        pattern=re.compile(r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s<>]+?)(?::\d+)?)\s*"),
    ),
    body=JsonArguments(),
    close=("<|tool_call_end|>",),
)
_KIMI_XTML = Call(
    head=Head(
        start=("<|open|>call ",),
        ends=("<|sep|>",),
        pattern=re.compile(r'tool="(?P<name>[^"]+)"(?:\s+index="\d+")?\s*'),
    ),
    body=Parameters(
        head=Head(
            start=("<|open|>argument ",),
            ends=("<|sep|>",),
            pattern=re.compile(r'key="(?P<key>[^"]*)"(?:\s+type="(?P<kind>\w+)")?\s*'),
        ),
        values=(Mark("<|close|>argument<|sep|>", then=("<|open|>argument ", "<|close|>call<|sep|>")),),
        entities=True,
        close=("<|close|>call<|sep|>",),
    ),
)

KIMI = Reply(
    thought=Thought(
        opens=("<think>", "<|open|>think<|sep|>"),
        closes=("</think>", "<|close|>think<|sep|>", "<|open|>response<|sep|>"),
        calls_end_it=True,
    ),
    calls=(_KIMI_JSON,),
    sections=(
        Section(
            opener=Mark("<|tool_calls_section_begin|>"), calls=(_KIMI_JSON,), close=("<|tool_calls_section_end|>",)
        ),
        Section(opener=Mark("<|open|>tools<|sep|>"), calls=(_KIMI_XTML,), close=("<|close|>tools<|sep|>",)),
    ),
    passed_over=(
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
        "<|tool_calls_section_end|>",
    ),
)

_LLAMA_JSON = JsonCall(members=("type", "id"), call_id="id")

LLAMA = Reply(
    calls=(
        Call(opener=Mark("<|python_tag|>"), body=_LLAMA_JSON, known=True),
        Call(opener=Mark("<|python_start|>"), body=PythonCalls(), close=("<|python_end|>",), known=True),
    ),
    bare=(Call(body=_LLAMA_JSON, known=True), Call(body=PythonCalls(), known=True)),
)

MISTRAL = Reply(
    thought=Thought(opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>")),
    calls=(
        Call(
            opener=Mark("[TOOL_CALLS]"),
            head=Head(
                ends=("{",),
                keep_end=True,
                pattern=re.compile(
                    r"\s*(?P<name>[^\[\]{}\s]+)\s*(?:\[CALL_ID\]\s*(?P<id>[^\[\]{}\s]+)\s*)?(?:\[ARGS\])?\s*"
                ),
                viable=re.compile(r"\s*(?:[^\[\]{}\s]+(?:\[[A-Z_]*|\[[A-Z_]+\]\s*[^\[\]{}\s]*)*)?\s*"),
            ),
            body=JsonArguments(),
            instead=JsonCall(call_id="id"),
        ),
    ),
)

GEMMA = Reply(
    thought=Thought(opens=("<|channel>thought\n",), closes=("<channel|>",), trim=True),
    calls=(
        Call(
            opener=Mark("<|tool_call>"),
            head=Head(
                ends=("{",),
                keep_end=True,
                pattern=re.compile(rf"\s*call:(?P<name>{_TOOL_NAME})\s*"),
                viable=re.compile(rf"\s*{_growing('call:', rf'(?:{_TOOL_NAME})?')}\s*"),
            ),
            body=LooseObject(quote='<|"|>'),
            close=("<tool_call|>",),
        ),
    ),
    passed_over=("<|tool_response>",),
)

HARMONY = Messages(
    start="<|start|>",
    role="assistant",
    body="<|message|>",
    ends=("<|end|>", "<|return|>", "<|call|>"),
    header_parts=("<|channel|>", "to="),
    header=re.compile(r"\s*(?:assistant)?\s*(?:<\|channel\|>\w*)?\s*(?:<\|constrain\|>\w*)?(?:<\|?[a-z]*\|?)?"),
    viable=re.compile(r"\s*(?:" + "|".join(_growing(part, r"[^\n]*") for part in ("assistant", "<|", "to=")) + ")"),
    channel=re.compile(r"<\|channel\|>(\w+)"),
    recipient=re.compile(r"\bto=([^\s<]+)"),
    recipient_prefix="functions.",
    nobody=("assistant", "user", "all"),
    thoughts=("analysis",),
)
