"""What schemathesis is told besides the document: which model there is, so that bodies get past its name."""

from __future__ import annotations

import schemathesis


@schemathesis.hook
def map_body(_context: object, body: object) -> object:
    """Most bodies ask for a model that is served."""
    if isinstance(body, dict) and isinstance(body.get("model"), str) and len(body["model"]) != 1:
        return {**body, "model": "simulated"}
    return body
