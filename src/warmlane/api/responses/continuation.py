"""What a WebSocket connection remembers: the responses made on it that are not stored.

Such a response can be continued on its own connection alone, and there always: warm if its session still is, else from
the messages kept here. A continuation that fails takes the response along that it named.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from warmlane.api import jsonio
from warmlane.api.errors import HttpRefusal
from warmlane.api.jsonio import JsonObject
from warmlane.conversation.messages import Message
from warmlane.conversation.turn import Outcome, TurnRequest
from warmlane.errors import PreviousResponseNotFound

MAX_OWNED = 4096
MAX_KEPT = 8
"""How many responses one connection can go on from, as often as it likes: those it made or went on from last."""


class Owners:
    """Which connection made an unstored response, for the latest `MAX_OWNED` of all connections. Connections are
    numbered; a response of number 0 can not be continued any more."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, int] = OrderedDict()
        self._connections = 0

    def connect(self) -> int:
        self._connections += 1
        return self._connections

    def claim(self, response_id: str, connection: int) -> None:
        self._made[response_id] = connection
        self._made.move_to_end(response_id)
        if len(self._made) > MAX_OWNED:
            self._made.popitem(last=False)

    def may_continue(self, response_id: str, connection: int) -> bool:
        return self._made.get(response_id, connection) == connection


@dataclass(frozen=True, slots=True)
class _Dialogue:
    """Everything said up to a response; None where it began in the store."""

    messages: tuple[Message, ...] | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The input and the previous id of a response that was only prepared for."""

    items: tuple[object, ...]
    previous: object


class Unstored:
    """The unstored responses of one connection. `max_bytes` is how much JSON may be prepared for one turn."""

    def __init__(self, owners: Owners, *, max_bytes: int) -> None:
        self._owners = owners
        self._max_bytes = max_bytes
        self._connection = owners.connect()
        self._kept: OrderedDict[str, _Dialogue | _Prepared] = OrderedDict()

    def check(self, previous: object) -> None:
        """Raises `PreviousResponseNotFound` for an unstored response of another connection, or of a failed turn."""
        if isinstance(previous, str) and not self._owners.may_continue(previous, self._connection):
            raise PreviousResponseNotFound(previous)

    def completed(self, body: JsonObject, items: Sequence[object]) -> JsonObject:
        """The body, with what it continues in it if that was only prepared for. Raises `HttpRefusal` if that is too
        much."""
        kept = self._kept.get(str(body.get("previous_response_id")))
        if not isinstance(kept, _Prepared):
            return body
        whole = [*kept.items, *items]
        if len(jsonio.encode(whole)) > self._max_bytes:
            message = (
                f"'input': with what was prepared in front of it, it is over the limit of {self._max_bytes} bytes."
            )
            raise HttpRefusal(413, message, code="request_too_large")
        return {**body, "input": whole, "previous_response_id": kept.previous}

    def cold(self, request: TurnRequest) -> TurnRequest | None:
        """The same turn without its previous response, whose messages it brings along; None if they are not here."""
        kept = self._kept.get(request.previous_response_id or "")
        if not isinstance(kept, _Dialogue) or kept.messages is None:
            return None
        return structs.replace(request, previous_response_id=None, input=(*kept.messages, *request.input))

    def prepared(self, response_id: str, items: Sequence[object], previous: object) -> None:
        self._keep(response_id, _Prepared(tuple(items), previous))

    def finished(self, request: TurnRequest, outcome: Outcome) -> None:
        """`request` as the client asked it."""
        previous = request.previous_response_id
        before = self._kept.get(previous or "")
        if before is not None:
            self._kept.move_to_end(previous or "")
        if request.store:
            return
        said: tuple[Message, ...] | None = ()
        if previous is not None:
            said = before.messages if isinstance(before, _Dialogue) else None
        whole = None if said is None else (*said, *request.input, outcome.message)
        self._keep(request.response_id, _Dialogue(whole))

    def failed(self, previous: object) -> None:
        """A turn that named `previous` failed."""
        if isinstance(previous, str) and self._kept.pop(previous, None) is not None:
            self._owners.claim(previous, 0)

    def _keep(self, response_id: str, what: _Dialogue | _Prepared) -> None:
        self._owners.claim(response_id, self._connection)
        self._kept[response_id] = what
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
