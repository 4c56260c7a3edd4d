"""GET /openapi.json: every route with what it takes and everything it may answer."""

from warmlane.api.openapi.routes import routes

__all__ = ["routes"]
