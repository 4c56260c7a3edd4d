"""Content blocks, as Messages words them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from warmlane.api.fields import Lenient, OrString, as_blocks


class CacheControl(Lenient):
    """A cache breakpoint: the prompt up to here is to be kept."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Source(Lenient):
    """Where a document or an image is: in `data` or `content`, or elsewhere."""

    type: str
    media_type: str | None = None
    data: str | None = None
    content: Blocks | None = None


class Citations(Lenient):
    enabled: bool | None = None


class WireBlock(Lenient):
    """One block of content. Which fields count depends on `type`."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, object] | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: Blocks | None = None
    source: str | Source | None = None
    title: str | None = None
    context: str | None = None
    tool_name: str | None = None
    citations: Citations | list[object] | None = None
    cache_control: CacheControl | None = None


Blocks = Annotated[list[WireBlock], BeforeValidator(as_blocks), OrString()]
"""A string, or an array of blocks; a string becomes one `text` block."""

Source.model_rebuild()
WireBlock.model_rebuild()
