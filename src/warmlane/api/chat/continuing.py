"""Chat Completions whose reply goes on from the last message. The vendor has no field for it; other servers do."""

from __future__ import annotations

from warmlane.api.beginnings import check_beginning
from warmlane.api.chat.request import ChatRequest
from warmlane.api.fields import refuse
from warmlane.conversation.messages import Message, Role

_NO_THOUGHT = "where a reply is continued: it does not think first."


def continues(request: ChatRequest, last: Message) -> bool:
    """Whether the reply is to go on from `last`: `continue_final_message` (vLLM, SGLang), or `prefix` on the message
    itself (DeepSeek, Mistral). Raises `InvalidRequest` where it cannot."""
    index = len(request.messages) - 1
    for at, message in enumerate(request.messages):
        if message.prefix and (at < index or last.role is not Role.ASSISTANT):
            raise refuse(f"messages[{at}].prefix", "belongs to the last message, and that must be the assistant's.")
    if not (request.continue_final_message or request.messages[index].prefix):
        if request.add_generation_prompt is False:
            raise refuse("add_generation_prompt", "must be true unless 'continue_final_message' is.")
        return False
    if last.role is not Role.ASSISTANT:
        raise refuse("continue_final_message", "needs a last message of role 'assistant'.")
    if request.reasoning_effort not in (None, "none"):
        raise refuse("reasoning_effort", f"must be 'none', or left out, {_NO_THOUGHT}")
    if request.chat_template_kwargs and request.chat_template_kwargs.enable_thinking:
        raise refuse("chat_template_kwargs.enable_thinking", f"must be false, or left out, {_NO_THOUGHT}")
    check_beginning(last, f"messages[{index}]")
    if not last.text:
        raise refuse(f"messages[{index}].content", "is required: the beginning of the reply.")
    return True
