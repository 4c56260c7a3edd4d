from __future__ import annotations

import json

import pytest

from warmlane.engine.backends.scripts import Script, parse_script


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ("EMIT:hello", "hello"),
        ("EMIT:two\nlines", "two\nlines"),
        ("please EMIT:hello", "hello"),
        ("THINK:let me see\nEMIT:done", "<think>let me see</think>done"),
        ("EMIT:done\nTHINK:late", "<think>late</think>done"),
        ("THINK:only", "<think>only</think>"),
        ("EMIT:a\nEMIT:b", "a\nb"),
        ("EMIT:", ""),
        ("SLEEP:0.5 EMIT:x", "x"),
        ("hello", None),
        ("MY_EMIT:no", None),
        ("FAIL:3", None),
    ],
)
def test_output(message: str, output: str | None) -> None:
    assert parse_script(message).output == output


def test_numbers() -> None:
    assert parse_script("SLEEP:1.5\nSLOW:20\nFAIL:3\nOOM:2\nCRASH:0") == Script(
        sleep_s=1.5, slow_s=0.02, fail_after=3, no_memory_after=2, crash_after=0
    )


def test_repeated_calls_are_parallel_and_keep_their_arguments() -> None:
    cities = ("Bern", "Oslo", "東京")
    message = "\n".join(f'USE_TOOL:get_weather {{"location": "{c}"}}' for c in cities)
    output = parse_script(message).output
    assert output is not None
    calls = [c.strip().removesuffix("</tool_call>") for c in output.split("<tool_call>")[1:]]
    assert [json.loads(c) for c in calls] == [{"name": "get_weather", "arguments": {"location": c}} for c in cities]


def test_arguments_may_span_lines_and_be_absent() -> None:
    spanning = parse_script('USE_TOOL:f {"a":\n1}\nEMIT:after').output
    assert spanning == '<tool_call>\n{"name": "f", "arguments": {"a":\n1}}\n</tool_call>\nafter'
    assert parse_script("USE_TOOL:f").output == '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
