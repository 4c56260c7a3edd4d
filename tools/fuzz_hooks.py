"""What schemathesis is told besides the document.

Bodies name a model, and have parts that the document leaves open (a dialogue's items, a client's own JSON). Made up,
they are refused at once, and what lies behind is never reached.
"""

from __future__ import annotations

import zlib

import schemathesis

MESSAGE = {"role": "user", "content": "hello"}
OPEN = (
    *("prompt", "tools", "tool_choice", "functions", "function_call", "text", "response_format", "output_format"),
    *("output_config", "audio", "web_search_options", "logit_bias", "modalities", "n", "mcp_servers", "thread"),
    *("compaction", "conversation", "previous_response_id", "system", "chat_template_kwargs", "thinking"),
)


@schemathesis.hook
def before_call(_context: object, case: schemathesis.Case, _kwargs: object) -> None:
    """Most bodies ask for a model that is served, and of those most have a dialogue that can be answered. Which ones
    depends on the body alone, so that a seed gives the same again."""
    if not isinstance(case.body, dict):
        return
    choice = zlib.crc32(repr(sorted(case.body.items(), key=str)).encode("utf-8", "replace")) % 8
    if choice == 0:
        return
    body = dict(case.body)
    if isinstance(body.get("model"), str):
        body["model"] = "simulated"
    if choice > 2:
        for name in ("input", "messages", "items"):
            if isinstance(body.get(name), list | str):
                body[name] = [MESSAGE]
        for name in OPEN:
            body.pop(name, None)
    case.body = body
