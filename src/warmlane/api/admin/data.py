"""DELETE /v1/data: everything this server keeps of a tenant."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from warmlane.api import jsonio
from warmlane.api.errors import HttpRefusal
from warmlane.api.guard import caller_of
from warmlane.api.settings import Edge


class DeletedData(msgspec.Struct, frozen=True, kw_only=True):
    """`responses` and `conversations` say how many there were."""

    object: Literal["data"] = "data"
    tenant: str
    responses: int
    conversations: int
    deleted: bool = True


def add_routes(app: FastAPI, edge: Edge) -> None:
    @app.delete("/v1/data", response_model=None)
    async def delete_data(request: Request) -> Response:
        identity = caller_of(request.scope).identity
        tenant = request.query_params.get("tenant", identity.tenant)
        if tenant != identity.tenant and not identity.admin:
            raise HttpRefusal(403, "Another tenant's data is the admin key's to delete.", code="admin_only")
        erasure = await edge.archive.erase(tenant)
        deleted = DeletedData(tenant=tenant, responses=erasure.responses, conversations=erasure.conversations)
        return Response(jsonio.encode(deleted), media_type="application/json")
