"""What the simulated engine says: scripts in the last message, or an echo of it.

A directive is a name and a colon, anywhere in the message: `EMIT:` and `THINK:` take the text up to the next line that
starts with a directive, `USE_TOOL:` a name and the rest of its line (a JSON object may span lines), the others a
number. Several are played in order, thoughts first, pieces of output joined by newlines. A grammar holds a script like
any reply: it is played for as long as it is allowed, and then the reply comes to its end by the shortest way.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass

_NAMES = "EMIT|USE_TOOL|THINK|SLEEP|SLOW|FAIL|OOM|CRASH"
_ANYWHERE = re.compile(rf"(?<![A-Za-z_])({_NAMES}):")
_NEXT_LINE = re.compile(rf"\n[ \t]*(?=(?:{_NAMES}):)")
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)")
_TOOL = re.compile(r"[ \t]*([^\s{]+)[ \t]*")


@dataclass(frozen=True, slots=True)
class Script:
    """One reply. `output` None: the message asked for nothing in particular. Times are in seconds; `fail_after`,
    `no_memory_after` and `crash_after` count tokens, 0 meaning in prefill."""

    output: str | None = None
    sleep_s: float = 0.0
    slow_s: float = 0.0
    fail_after: int | None = None
    no_memory_after: int | None = None
    crash_after: int | None = None


def parse_script(message: str) -> Script:
    """Read the directives of a message; a number that is missing counts as 0."""
    thoughts: list[str] = []
    output: list[str] = []
    numbers: dict[str, float] = {}
    at = 0
    while (directive := _ANYWHERE.search(message, at)) is not None:
        name, at = directive[1], directive.end()
        if name in ("EMIT", "THINK"):
            end = _NEXT_LINE.search(message, at)
            text = message[at : end.start() if end else len(message)]
            (thoughts if name == "THINK" else output).append(text)
            at += len(text)
        elif name == "USE_TOOL":
            call, at = _tool_call(message, at)
            output.append(call)
        else:
            number = _NUMBER.match(message, at)
            numbers[name] = float(number[1]) if number else 0.0
            at = number.end() if number else at
    thinking = "".join(f"<think>{t}</think>" for t in thoughts)
    return Script(
        output=thinking + "\n".join(output) if thoughts or output else None,
        sleep_s=numbers.get("SLEEP", 0.0),
        slow_s=numbers.get("SLOW", 0.0) / 1e3,
        fail_after=int(numbers["FAIL"]) if "FAIL" in numbers else None,
        no_memory_after=int(numbers["OOM"]) if "OOM" in numbers else None,
        crash_after=int(numbers["CRASH"]) if "CRASH" in numbers else None,
    )


def default_reply(role: str, message: str) -> str:
    """What is said where no script gives an output."""
    return f"tool said: {message}" if role == "tool" else f"echo: {message}"


def _tool_call(message: str, at: int) -> tuple[str, int]:
    """The Hermes form of the call written at `at`, its arguments as they stand, and where it ends."""
    head = _TOOL.match(message, at)
    name, at = (head[1], head.end()) if head else ("", at)
    line_end = message.find("\n", at)
    end = line_end if line_end >= 0 else len(message)
    if message.startswith("{", at):
        with contextlib.suppress(ValueError):
            _, end = json.JSONDecoder().raw_decode(message, at)
    arguments = message[at:end].strip() or "{}"
    quoted = json.dumps(name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {quoted}, "arguments": {arguments}}}\n</tool_call>', end
