"""Every operation of this server. A test holds this list and the routes equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from warmlane.api.admin.data import DeletedData
from warmlane.api.admin.health import Health, Ready, Root
from warmlane.api.admin.models import AnthropicModel, AnthropicModels, OpenAIModel, OpenAIModels
from warmlane.api.admin.sessions import Deleted as DeletedSession
from warmlane.api.admin.sessions import Sessions
from warmlane.api.chat import wire as chat
from warmlane.api.chat.request import ChatRequest
from warmlane.api.conversations.render import ConversationObject, DeletedConversation
from warmlane.api.conversations.request import AddRequest, CreateRequest, UpdateRequest
from warmlane.api.messages import wire as messages
from warmlane.api.messages.request import CreateMessageRequest, MessagesRequest
from warmlane.api.openapi.operation import Group, Operation, Parameter
from warmlane.api.responses import event_wire
from warmlane.api.responses.compaction import Compacted
from warmlane.api.responses.items import MAX_PAGE, InputItem, InputItems
from warmlane.api.responses.request import CompactRequest, ResponsesRequest
from warmlane.api.responses.stored import Deleted as DeletedResponse
from warmlane.api.responses.stored import TokenCount
from warmlane.api.responses.wire import Response

_ANY: Final = frozenset({401, 403, 500})
"""The key is wrong or missing, the Host is not served, the server has a fault."""

_STORED: Final = _ANY | {400, 404, 503}
"""Of what is kept: what is asked is wrong, there is no such thing, the store is away."""

_BODY: Final = _ANY | {400, 413, 415}
_COUNT: Final = _BODY | {404, 503}
_TURN: Final = _COUNT | {429, 504}

_TEXT: Final[Mapping[str, object]] = {"type": "string"}
_RESPONSE: Final = Parameter("response_id", "path", _TEXT)
_CONVERSATION: Final = Parameter("conversation_id", "path", _TEXT)
_ITEM: Final = Parameter("item_id", "path", _TEXT)
_INCLUDE: Final = Parameter("include", "query", {"type": "array", "items": _TEXT}, "Accepted, and without effect.")
_PAGE: Final = (
    Parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 20}),
    Parameter("order", "query", {"enum": ["asc", "desc"], "default": "desc"}),
    Parameter("after", "query", _TEXT, "The id of the item before the page."),
)
_VERSION: Final = Parameter("anthropic-version", "header", _TEXT, "Asks for the shapes of Messages.")
_MODELS_PAGE: Final = (
    _VERSION,
    Parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}),
    Parameter("after_id", "query", _TEXT),
    Parameter("before_id", "query", _TEXT),
)

_RESPONSES: Final = (
    Operation(
        method="post",
        path="/v1/responses",
        name="createResponse",
        summary="Answer an input. The same path takes a WebSocket.",
        group=Group.RESPONSES,
        body=ResponsesRequest,
        answers=(Response,),
        events=(event_wire.Event,),
        errors=_TURN,
    ),
    Operation(
        method="post",
        path="/v1/responses/compact",
        name="compactResponse",
        summary="Have the model summarise a dialogue, to go on from the summary.",
        group=Group.RESPONSES,
        body=CompactRequest,
        answers=(Compacted,),
        errors=_TURN,
    ),
    Operation(
        method="post",
        path="/v1/responses/input_tokens",
        name="countInputTokens",
        summary="Count the tokens of a prompt.",
        group=Group.RESPONSES,
        body=ResponsesRequest,
        answers=(TokenCount,),
        errors=_COUNT,
    ),
    Operation(
        method="get",
        path="/v1/responses/{response_id}",
        name="retrieveResponse",
        summary="A stored response; the events of one in the background as a stream.",
        group=Group.RESPONSES,
        parameters=(
            _RESPONSE,
            Parameter("stream", "query", {"enum": ["true", "false"]}),
            Parameter("starting_after", "query", {"type": "integer", "minimum": 0, "maximum": 99_999_999_999}),
            _INCLUDE,
        ),
        answers=(Response,),
        events=(event_wire.Event,),
        errors=_STORED,
    ),
    Operation(
        method="delete",
        path="/v1/responses/{response_id}",
        name="deleteResponse",
        summary="Delete a response, with all that is warm of it.",
        group=Group.RESPONSES,
        parameters=(_RESPONSE,),
        answers=(DeletedResponse,),
        errors=_STORED - {400},
    ),
    Operation(
        method="post",
        path="/v1/responses/{response_id}/cancel",
        name="cancelResponse",
        summary="Stop a response in the background.",
        group=Group.RESPONSES,
        parameters=(_RESPONSE,),
        answers=(Response,),
        errors=_STORED,
    ),
    Operation(
        method="get",
        path="/v1/responses/{response_id}/input_items",
        name="listInputItems",
        summary="What a response answered, item by item.",
        group=Group.RESPONSES,
        parameters=(_RESPONSE, *_PAGE, _INCLUDE),
        answers=(InputItems,),
        errors=_STORED,
    ),
)

_CONVERSATIONS: Final = (
    Operation(
        method="post",
        path="/v1/conversations",
        name="createConversation",
        summary="Begin a conversation, with items if there are any.",
        group=Group.CONVERSATIONS,
        body=CreateRequest,
        answers=(ConversationObject,),
        errors=_BODY | {503},
    ),
    Operation(
        method="get",
        path="/v1/conversations/{conversation_id}",
        name="retrieveConversation",
        summary="A conversation's metadata.",
        group=Group.CONVERSATIONS,
        parameters=(_CONVERSATION,),
        answers=(ConversationObject,),
        errors=_STORED - {400},
    ),
    Operation(
        method="post",
        path="/v1/conversations/{conversation_id}",
        name="updateConversation",
        summary="Replace a conversation's metadata.",
        group=Group.CONVERSATIONS,
        parameters=(_CONVERSATION,),
        body=UpdateRequest,
        answers=(ConversationObject,),
        errors=_BODY | _STORED,
    ),
    Operation(
        method="delete",
        path="/v1/conversations/{conversation_id}",
        name="deleteConversation",
        summary="Delete a conversation and its items; the responses made in it stay.",
        group=Group.CONVERSATIONS,
        parameters=(_CONVERSATION,),
        answers=(DeletedConversation,),
        errors=_STORED - {400},
    ),
    Operation(
        method="get",
        path="/v1/conversations/{conversation_id}/items",
        name="listItems",
        summary="What was said in a conversation.",
        group=Group.CONVERSATIONS,
        parameters=(_CONVERSATION, *_PAGE, _INCLUDE),
        answers=(InputItems,),
        errors=_STORED,
    ),
    Operation(
        method="post",
        path="/v1/conversations/{conversation_id}/items",
        name="addItems",
        summary="Put items at the end of a conversation.",
        group=Group.CONVERSATIONS,
        parameters=(_CONVERSATION, _INCLUDE),
        body=AddRequest,
        answers=(InputItems,),
        errors=_BODY | _STORED,
    ),
    Operation(
        method="get",
        path="/v1/conversations/{conversation_id}/items/{item_id}",
        name="retrieveItem",
        summary="One item.",
        group=Group.CONVERSATIONS,
        parameters=(_CONVERSATION, _ITEM, _INCLUDE),
        answers=(InputItem,),
        errors=_STORED - {400},
    ),
    Operation(
        method="delete",
        path="/v1/conversations/{conversation_id}/items/{item_id}",
        name="deleteItem",
        summary="Take one item out.",
        group=Group.CONVERSATIONS,
        parameters=(_CONVERSATION, _ITEM),
        answers=(ConversationObject,),
        errors=_STORED - {400},
    ),
)

_DIALECTS: Final = (
    Operation(
        method="post",
        path="/v1/messages",
        name="createMessage",
        summary="Answer a dialogue.",
        group=Group.MESSAGES,
        body=CreateMessageRequest,
        answers=(messages.Reply,),
        events=(messages.Event,),
        errors=_TURN,
    ),
    Operation(
        method="post",
        path="/v1/messages/count_tokens",
        name="countTokens",
        summary="Count the tokens of a prompt.",
        group=Group.MESSAGES,
        body=MessagesRequest,
        answers=(messages.TokenCount,),
        errors=_COUNT,
    ),
    Operation(
        method="post",
        path="/v1/chat/completions",
        name="createChatCompletion",
        summary="Answer a dialogue.",
        group=Group.CHAT,
        body=ChatRequest,
        answers=(chat.Completion,),
        events=(chat.Chunk, chat.Error),
        done="[DONE]",
        errors=_TURN,
    ),
)

_SERVER: Final = (
    Operation(
        method="get",
        path="/v1/models",
        name="listModels",
        summary="The models that are served.",
        group=Group.MODELS,
        parameters=_MODELS_PAGE,
        answers=(OpenAIModels, AnthropicModels),
        errors=_ANY | {400},
    ),
    Operation(
        method="get",
        path="/v1/models/{model_id}",
        name="retrieveModel",
        summary="One model, by its name or an alias.",
        group=Group.MODELS,
        parameters=(Parameter("model_id", "path", _TEXT), _VERSION),
        answers=(OpenAIModel, AnthropicModel),
        errors=_ANY | {404},
    ),
    Operation(
        method="get",
        path="/v1/sessions",
        name="listSessions",
        summary="What is warm of the caller's.",
        group=Group.SERVER,
        answers=(Sessions,),
        errors=_ANY,
    ),
    Operation(
        method="delete",
        path="/v1/sessions/{session_id}",
        name="endSession",
        summary="Give up what is warm under an id.",
        group=Group.SERVER,
        parameters=(Parameter("session_id", "path", _TEXT),),
        answers=(DeletedSession,),
        errors=_ANY | {404},
    ),
    Operation(
        method="delete",
        path="/v1/data",
        name="deleteData",
        summary="Delete everything that is kept of the caller, or with the admin key of a tenant.",
        group=Group.SERVER,
        parameters=(Parameter("tenant", "query", _TEXT),),
        answers=(DeletedData,),
        errors=_ANY | {503},
    ),
    Operation(
        method="get",
        path="/",
        name="root",
        summary="What serves here.",
        group=Group.SERVER,
        answers=(Root,),
        errors=_ANY - {401},
    ),
    Operation(
        method="get",
        path="/health",
        name="health",
        summary="The process lives.",
        group=Group.SERVER,
        answers=(Health,),
        errors=_ANY - {401},
    ),
    Operation(
        method="get",
        path="/ready",
        name="ready",
        summary="Whether a turn could be taken now.",
        group=Group.SERVER,
        answers=(Ready,),
        errors=_ANY - {401},
        others=frozenset({503}),
    ),
    Operation(
        method="get",
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        group=Group.SERVER,
        answers=(dict[str, object],),
        errors=_ANY - {401},
    ),
)

METRICS: Final = Operation(
    method="get",
    path="/metrics",
    name="metrics",
    summary="Readings for Prometheus; of all tenants, so with the admin key where there are keys.",
    group=Group.SERVER,
    answers=(),
    errors=_ANY,
    media=("text/plain", "application/openmetrics-text"),
)

OPERATIONS: Final = (*_RESPONSES, *_CONVERSATIONS, *_DIALECTS, *_SERVER)
