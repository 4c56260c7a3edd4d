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


_stored: list[str] = []


@schemathesis.hook
def before_call(_context: object, case: schemathesis.Case, _kwargs: object) -> None:
    """Most bodies ask for a model that is served, and of those most have a dialogue that can be answered; most ids are
    those of stored responses, and not all data goes. Which ones depends on what was made up alone, so that a seed gives
    the same again."""
    path = dict(case.path_parameters or {})
    if _stored and "response_id" in path and _choice(path) > (6 if case.method == "DELETE" else 0):
        case.path_parameters = {**path, "response_id": _stored[-1]}
    if isinstance(case.body, dict):
        case.body = _answerable(case.body)
    if case.operation.path == "/v1/data":
        case.query = {**(case.query or {}), "tenant": "somebody else"}


@schemathesis.hook
def after_call(_context: object, case: schemathesis.Case, response: schemathesis.Response) -> None:
    """Keep in mind which responses are stored."""
    if case.path_parameters and (case.method == "DELETE" or response.status_code == 404):
        gone = case.path_parameters.get("response_id")
        _stored[:] = [known for known in _stored if known != gone]
    if case.method == "POST" and case.operation.path == "/v1/responses" and response.status_code == 200:
        told = response.json() if "json" in response.headers["content-type"][0] else {}
        if told.get("store"):
            _stored.append(told["id"])


def _choice(made_up: dict[str, object]) -> int:
    return zlib.crc32(repr(sorted(made_up.items(), key=str)).encode("utf-8", "replace")) % 8


def _answerable(body: dict[str, object]) -> dict[str, object]:
    choice = _choice(body)
    if choice == 0:
        return body
    body = dict(body)
    if isinstance(body.get("model"), str):
        body["model"] = "simulated"
    if choice > 2:
        for name in ("input", "messages", "items"):
            if isinstance(body.get(name), list | str):
                body[name] = [MESSAGE]
        for name in OPEN:
            body.pop(name, None)
        if "max_tokens" in body:
            body["max_tokens"] = 16
    return body
