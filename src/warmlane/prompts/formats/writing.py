"""How the families write a reply: what their grammars hold a model to, and what round trips are tested with.

Only the one way a model was trained on is told here; `layouts` tells all that is understood. White space between text
and calls is the template's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Arguments(Enum):
    """How arguments are written: as a JSON object, one element a parameter, Gemma's objects, Python's keywords."""

    JSON = auto()
    ELEMENTS = auto()
    LOOSE = auto()
    PYTHON = auto()


class Kind(Enum):
    """What an element says of its value: nothing, whether it is a string, or its JSON type."""

    UNTOLD = auto()
    IS_STRING = auto()
    JSON_TYPE = auto()


def entities(key: str) -> str:
    """A key as it stands in an attribute of an element with `entities`."""
    return key.replace("&", "&amp;").replace('"', "&quot;")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """A parameter: `open` key `middle` value `close`. Where the kind of a value is told, `middle` has a `{kind}`."""

    open: str
    middle: str
    close: str
    kind: Kind = Kind.UNTOLD
    entities: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """A reply is a thought, text and calls, in this order.

    `thought` and `text` are what stands before and after each; a thought that the prompt opened has only what is
    behind. `preamble` is around text that calls follow, where that is not `text`; `gap` is between text and calls.
    `begin`, `between` and `end` stand around calls; `open` name `middle` arguments `close` are one, and an `{index}`
    there is its number. Without `between` a reply has one call at most. `alone`: calls stand without text. `last` ends
    a reply.
    """

    thought: tuple[str, str] | None = None
    text: tuple[str, str] = ("", "")
    preamble: tuple[str, str] | None = None
    gap: str = ""
    begin: str = ""
    open: str
    middle: str
    close: str
    between: str | None = None
    end: str = ""
    last: str = ""
    arguments: Arguments = Arguments.JSON
    elements: Elements | None = None
    alone: bool = False
    first_index: int = 0


_THINK = ("<think>\n", "\n</think>\n\n")

HERMES = Writing(
    thought=_THINK,
    gap="\n",
    open='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    close="}\n</tool_call>",
    between="\n",
)

QWEN_XML = Writing(
    thought=_THINK,
    gap="\n\n",
    open="<tool_call>\n<function=",
    middle=">\n",
    close="</function>\n</tool_call>",
    between="\n",
    arguments=Arguments.ELEMENTS,
    elements=Elements(open="<parameter=", middle=">\n", close="\n</parameter>\n"),
)

GLM = Writing(
    thought=("<think>", "</think>\n"),
    gap="\n",
    open="<tool_call>",
    middle="\n",
    close="</tool_call>",
    between="\n",
    arguments=Arguments.ELEMENTS,
    elements=Elements(open="<arg_key>", middle="</arg_key>\n<arg_value>", close="</arg_value>\n"),
)

GLM_COMPACT = Writing(
    thought=("<think>", "</think>"),
    open="<tool_call>",
    middle="",
    close="</tool_call>",
    between="",
    arguments=Arguments.ELEMENTS,
    elements=Elements(open="<arg_key>", middle="</arg_key><arg_value>", close="</arg_value>"),
)

DEEPSEEK_V3 = Writing(
    thought=("<think>", "</think>"),
    begin="<｜tool▁calls▁begin｜>",
    open="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    middle="\n```json\n",
    close="\n```<｜tool▁call▁end｜>",
    between="\n",
    end="<｜tool▁calls▁end｜>",
)

DEEPSEEK_V31 = Writing(
    thought=("<think>", "</think>"),
    begin="<｜tool▁calls▁begin｜>",
    open="<｜tool▁call▁begin｜>",
    middle="<｜tool▁sep｜>",
    close="<｜tool▁call▁end｜>",
    between="",
    end="<｜tool▁calls▁end｜>",
)


def _dsml(calls: str, space: str = "") -> Writing:
    dsml = f"｜DSML｜{space}"
    return Writing(
        thought=("<think>", "</think>"),
        gap="\n\n",
        begin=f"<{dsml}{calls}>\n",
        open=f'<{dsml}invoke name="',
        middle='">\n',
        close=f"</{dsml}invoke>\n",
        between="",
        end=f"</{dsml}{calls}>",
        arguments=Arguments.ELEMENTS,
        elements=Elements(
            open=f'<{dsml}parameter name="',
            middle='" string="{kind}">',
            close=f"</{dsml}parameter>\n",
            kind=Kind.IS_STRING,
        ),
    )


DEEPSEEK_V32 = _dsml("function_calls")
DEEPSEEK_V4 = _dsml("tool_calls")
DEEPSEEK_V41 = _dsml("calls", " ")

KIMI_K2 = Writing(
    thought=("<think>", "</think>"),
    begin="<|tool_calls_section_begin|>",
    open="<|tool_call_begin|>functions.",
    middle=":{index}<|tool_call_argument_begin|>",
    close="<|tool_call_end|>",
    between="",
    end="<|tool_calls_section_end|>",
)

KIMI_K3 = Writing(
    thought=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    text=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    begin="<|open|>tools<|sep|>",
    open='<|open|>call tool="',
    middle='" index="{index}"<|sep|>',
    close="<|close|>call<|sep|>",
    between="",
    end="<|close|>tools<|sep|>",
    last="<|close|>message<|sep|>",
    arguments=Arguments.ELEMENTS,
    elements=Elements(
        open='<|open|>argument key="',
        middle='" type="{kind}"<|sep|>',
        close="<|close|>argument<|sep|>",
        kind=Kind.JSON_TYPE,
        entities=True,
    ),
    first_index=1,
)

LLAMA = Writing(open='{"name": "', middle='", "parameters": ', close="}", between="; ", alone=True)

LLAMA_PYTHONIC = Writing(
    begin="[", open="", middle="", close="", between=", ", end="]", arguments=Arguments.PYTHON, alone=True
)

MISTRAL = Writing(thought=("[THINK]", "[/THINK]"), open="[TOOL_CALLS]", middle="[ARGS]", close="", between="")

MISTRAL_V3 = Writing(
    begin="[TOOL_CALLS] [", open='{"name": "', middle='", "arguments": ', close="}", between=", ", end="]"
)

GEMMA = Writing(
    thought=("<|channel>thought\n", "\n<channel|>"),
    open="<|tool_call>call:",
    middle="",
    close="<tool_call|>",
    between="",
    arguments=Arguments.LOOSE,
)

HARMONY = Writing(
    thought=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    text=("<|channel|>final<|message|>", ""),
    preamble=("<|channel|>commentary<|message|>", "<|end|><|start|>assistant"),
    open="<|channel|>commentary to=functions.",
    middle=" <|constrain|>json<|message|>",
    close="",
)
