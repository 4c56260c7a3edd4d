"""Every error Warmlane raises, as one tree.

WarmlaneError
├── ConfigError                 a flag, file or model that cannot be used; the message says how to fix it
├── RequestError                the client's fault, found before any model work
│   ├── InvalidRequest          a field's value is wrong
│   │   └── ThreadsUnsupported  the server was to hold the dialogue; the client can send it whole instead
│   ├── ContextOverflow         the prompt cannot fit the model's window
│   ├── Unauthorized            no key, or an unknown one
│   ├── ModelNotFound
│   ├── ResponseNotFound        retrieve or delete of an id this tenant does not have
│   ├── ConversationNotFound    no conversation, or no item in it, of that id for this tenant
│   ├── SessionNotFound         no warm session of that id for this tenant
│   └── PreviousResponseNotFound
├── Overloaded                  nothing is wrong with the request; try again later
│   ├── QueueFull               the admission budget is spent
│   ├── QueueTimeout            waited for a seat until the deadline
│   └── Unavailable             draining, loading, or the engine is down
│       └── StoreUnavailable    the response store is locked, full, slow or gone
├── SessionError                a session was used against its contract (a bug in the caller)
│   ├── SessionBusy
│   └── SessionDisposed
├── EngineError                 the engine failed while it ran this turn
│   ├── EngineFault             this turn failed; the engine goes on
│   │   └── EngineOutOfMemory   there was no memory to compute it
│   └── EngineDied              the worker process is gone, and this turn with it
├── TurnTimeout                 the turn ran longer than the server lets one run
├── BenchError                  a measurement could not be made: the server measured is away, or refused, or broke off
└── HttpRefusal                 refused by the HTTP edge before a route saw it; lives in `api/errors.py`

A class knows what it means, not its HTTP status; `api/errors.py` maps the tree to the two wire envelopes.
"""

from __future__ import annotations


class WarmlaneError(Exception):
    """Base of every error raised on purpose."""

    @property
    def message(self) -> str:
        """One sentence fit for a client: no paths of this machine, no text of another tenant."""
        return str(self)


class ConfigError(WarmlaneError):
    """A setting or model file that cannot be used."""


class RequestError(WarmlaneError):
    """The client's fault. `param` is the path of the field, dotted and indexed (`messages[2].role`), or None."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidRequest(RequestError):
    """A field's value is wrong or not supported."""


class ThreadsUnsupported(InvalidRequest):
    """The server was asked to hold a Messages dialogue. A client that is told so in its own terms sends it whole."""

    def __init__(self) -> None:
        super().__init__(
            "'thread': is not supported by this server; send the whole conversation without it.", param="thread"
        )


class ContextOverflow(RequestError):
    """The prompt alone, or with one token of output, does not fit the window."""

    def __init__(self, prompt_tokens: int, limit: int, *, param: str | None = None) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens; this model's window holds {limit}.",
            param=param,
        )
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class Unauthorized(RequestError):
    """No API key, or one that no tenant has."""


class ModelNotFound(RequestError):
    """No such model here, loaded or loadable."""

    def __init__(self, model: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"The model {model!r} does not exist here. Available: {', '.join(known) or 'none'}.",
            param="model",
        )
        self.model = model


class ResponseNotFound(RequestError):
    """This tenant has no response of that id."""

    def __init__(self, response_id: str) -> None:
        super().__init__(f"No response found with id {response_id!r}.", param="response_id")
        self.response_id = response_id


class ConversationNotFound(RequestError):
    """This tenant has no conversation of that id, or the conversation no such item."""

    def __init__(self, conversation_id: str, item_id: str | None = None, *, param: str = "conversation_id") -> None:
        if item_id is None:
            message = f"No conversation found with id {conversation_id!r}."
        else:
            message, param = f"No item {item_id!r} found in conversation {conversation_id!r}.", "item_id"
        super().__init__(message, param=param)
        self.conversation_id = conversation_id
        self.item_id = item_id


class SessionNotFound(RequestError):
    """This tenant has no warm session of that id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"No warm session found with id {session_id!r}.", param="session_id")
        self.session_id = session_id


class PreviousResponseNotFound(RequestError):
    """`previous_response_id` names neither a stored row nor a warm session of this tenant."""

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Previous response with id {response_id!r} not found.", param="previous_response_id")
        self.response_id = response_id


class Overloaded(WarmlaneError):
    """Nothing is wrong with the request. `retry_after_s` is in whole seconds, at least 1."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Overloaded):
    """Refused by the admission predicate of `sessions.lane`; nothing was changed by the refused arrival.

    `footprint` is waiting + permits (active units excluded), `limit` the lane's `max_waiting`, `scope` which clause
    refused: `"lane"` or `"tenant"`.
    """

    def __init__(
        self, *, waiting: int, permits: int, limit: int | None, scope: str = "lane", retry_after_s: int = 1
    ) -> None:
        self.waiting = waiting
        self.permits = permits
        self.footprint = waiting + permits
        self.limit = limit
        self.scope = scope
        super().__init__(
            f"The queue is full: {waiting} waiting + {permits} permits = {self.footprint}, "
            f"limit {limit} (scope: {scope}). Retry after {retry_after_s} s.",
            retry_after_s=retry_after_s,
        )


class QueueTimeout(Overloaded):
    """No seat came free within `queue_timeout_s`."""


class Unavailable(Overloaded):
    """The server drains, a model loads, or the engine or the store is down."""


class StoreUnavailable(Unavailable):
    """The response store did not do what it was asked within its timeout: it is locked, full, slow or gone.

    A row that was to be written may or may not be there, but never in part.
    """


class SessionError(WarmlaneError):
    """A session was used against its contract."""


class SessionBusy(SessionError):
    """A send, reset or dispose overlapped another one of the same session."""


class SessionDisposed(SessionError):
    """The session was disposed; nothing can be done with it."""


class EngineError(WarmlaneError):
    """The engine failed while it ran a turn."""


class EngineFault(EngineError):
    """This turn failed; the engine serves the others on."""


class EngineOutOfMemory(EngineFault):
    """There was no memory to compute this turn; there may be later."""


class EngineDied(EngineError):
    """The worker process ended, and with it every turn of its generation."""


class TurnTimeout(WarmlaneError):
    """The turn ran longer than `turn_timeout_s`. Asked again as it is, it would most likely run as long."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"The turn took longer than {limit_s:g} s, which is the longest this server lets one run.")
        self.limit_s = limit_s


class BenchError(WarmlaneError):
    """A measurement could not be made: the server measured is away, or refused, or broke off."""
