"""A background response that ended without an outcome: what its row keeps of it, as the dialect's own JSON."""

from __future__ import annotations

import msgspec

from warmlane.api.errors import WireError
from warmlane.api.responses import wire

OVERFLOW_CODE = "context_length_exceeded"
"""Not among the codes of the vendor's type, and the only one by which agents know to compact."""


class Broken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`code` and `message` say what failed, empty of what was cancelled; the rest is what was told, and spent, by
    then."""

    code: str = ""
    message: str = ""
    output: tuple[wire.OutputItem, ...] = ()
    usage: wire.ResponseUsage | None = None

    @property
    def fault(self) -> wire.ResponseFault | None:
        return wire.ResponseFault(code=self.code, message=self.message) if self.code else None


def fault_of(error: WireError) -> wire.ResponseFault:
    """The `error` of a failed response, whose codes are fewer than those of a refusal."""
    code = OVERFLOW_CODE if error.code == OVERFLOW_CODE else "server_error"
    return wire.ResponseFault(code=code, message=error.message)


def broken_off(response: wire.Response) -> Broken:
    """What to keep of a failed or cancelled response."""
    fault = response.error
    return Broken(
        code=fault.code if fault else "",
        message=fault.message if fault else "",
        output=response.output,
        usage=response.usage,
    )
