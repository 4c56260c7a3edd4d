"""The reasoning effort of Responses and Chat."""

from __future__ import annotations

from typing import Literal

from warmlane.conversation.tools import Thinking

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def thinking_of(effort: Effort | None) -> Thinking:
    """No effort leaves it to the model's template whether to think; `none` asks not to."""
    if effort is None:
        return Thinking()
    return Thinking(enabled=False) if effort == "none" else Thinking(enabled=True, effort=effort)
