"""What schemathesis is told besides the document.

Bodies name a model, and have parts that the document leaves open (a dialogue's items, a client's own JSON). Made up,
they are refused at once, and what lies behind is never reached. So are ids: most are those of something that is kept.
"""

from __future__ import annotations

import atexit
import os
import zlib
from collections import Counter

import requests
import schemathesis

MESSAGE = {"role": "user", "content": "hello"}
SLOW = {"role": "user", "content": "SLOW:4 EMIT:" + "slowly " * 20}
OPEN = (
    *("prompt", "tools", "tool_choice", "functions", "function_call", "text", "response_format", "output_format"),
    *("output_config", "audio", "web_search_options", "logit_bias", "modalities", "n", "mcp_servers", "thread"),
    *("compaction", "conversation", "previous_response_id", "system", "chat_template_kwargs", "thinking"),
)
URL = os.environ["FUZZED"]


class Kept:
    """What the server keeps: ids of responses, of those in the background, of conversations, and of items with the
    conversation each is in. No dataclass: whoever loads this file does not register it as a module."""

    def __init__(self) -> None:
        self.responses: list[str] = []
        self.background: list[str] = []
        self.conversations: list[str] = []
        self.items: list[tuple[str, str]] = []

    def forget(self, gone: str) -> None:
        for names in (self.responses, self.background, self.conversations):
            names[:] = [name for name in names if name != gone]
        self.items[:] = [item for item in self.items if gone not in item]


_kept = Kept()
_answers: Counter[tuple[str, str]] = Counter()


@schemathesis.hook
def before_call(_context: object, case: schemathesis.Case, _kwargs: object) -> None:
    """Most bodies ask for a model that is served, and of those most have a dialogue that can be answered; most ids are
    those of something kept, made for the purpose where there is nothing, and not all data goes. Which ones depends on
    what was made up and asked before alone, so that a seed gives the same again."""
    path = dict(case.path_parameters or {})
    if path and _choice(path) > (4 if case.method == "DELETE" and "item_id" not in path else 0):
        case.path_parameters = {**path, **_ids(case, _choice(path))}
    if isinstance(case.body, dict):
        case.body = _answerable(case.body)
    if case.operation.path == "/v1/data":
        case.query = {**(case.query or {}), "tenant": "somebody else"}


@schemathesis.hook
def after_call(_context: object, case: schemathesis.Case, response: schemathesis.Response) -> None:
    """Count the answer, and keep in mind what is kept."""
    name = f"{case.operation.method.upper()} {case.operation.path}"
    if case.method == case.operation.method.upper():
        _answers[name, response.status_code // 100] += 1
    path = {key: str(value) for key, value in (case.path_parameters or {}).items()}
    one = path.get("item_id") or path.get("response_id") or path.get("conversation_id") or ""
    if response.status_code == 404 or (case.method == "DELETE" and response.status_code == 200):
        _kept.forget(one)
    if response.status_code != 200 or "json" not in response.headers["content-type"][0]:
        return
    if name == "POST /v1/responses" and (told := response.json())["store"]:
        (_kept.background if told["background"] else _kept.responses).append(told["id"])
    elif name == "POST /v1/conversations":
        _kept.conversations.append(response.json()["id"])
    elif name.endswith("/items"):
        _kept.items += [(path["conversation_id"], item["id"]) for item in response.json()["data"]]
    elif name.endswith("/cancel") and _answers[name, 2] % 2:
        _kept.forget(one)


@atexit.register
def _tell() -> None:
    """How often each operation was answered, by the class of the status."""
    if not _answers:
        return
    classes = sorted({status for _, status in _answers})
    print(f"\n{'answers':56}" + "".join(f"{f'{status}xx':>8}" for status in classes))
    for name in sorted({name for name, _ in _answers}, key=lambda name: name.split()[::-1]):
        print(f"{name:56}" + "".join(f"{_answers[name, status] or '-':>8}" for status in classes))


def _ids(case: schemathesis.Case, choice: int) -> dict[str, str]:
    """Of something kept, for the parameters of the path; a cancel sometimes gets a response that is not in the
    background, and an item sometimes another conversation."""
    parameters = case.path_parameters or {}
    if "item_id" in parameters:
        if not _kept.items:
            conversation = _made("/v1/conversations", {"items": [MESSAGE, SLOW]})
            listed = requests.get(f"{URL}/v1/conversations/{conversation}/items", timeout=60).json()["data"]
            _kept.items += [(conversation, item["id"]) for item in listed]
        conversation, item = _kept.items[-1]
        return {"conversation_id": conversation if choice > 1 else _conversation(), "item_id": item}
    if "conversation_id" in parameters:
        return {"conversation_id": _conversation()}
    if "response_id" not in parameters:
        return {"model_id": "simulated"} if "model_id" in parameters else {}
    streams = (case.query or {}).get("stream") == "true"
    background = (case.operation.path.endswith("/cancel") and choice > 1) or streams
    names = _kept.background if background else _kept.responses
    if not names:
        names.append(_made("/v1/responses", {"model": "simulated", "input": [SLOW], "background": background}))
    return {"response_id": names[-1]}


def _conversation() -> str:
    if not _kept.conversations:
        _kept.conversations.append(_made("/v1/conversations", {"items": [MESSAGE]}))
    return _kept.conversations[-1]


def _made(path: str, body: dict[str, object]) -> str:
    """The id of what a POST makes. Raises where nothing was made."""
    answer = requests.post(URL + path, json=body, timeout=60)
    answer.raise_for_status()
    return str(answer.json()["id"])


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
        if "input" in body and choice == 3 and _kept.responses:
            body["previous_response_id"] = _kept.responses[-1]
        if "input" in body and choice == 4:
            body["conversation"] = _conversation()
    return body
