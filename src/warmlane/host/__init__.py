"""Which models exist, which are loaded, and the tasks their turns run in."""

from warmlane.host.aliases import Aliases
from warmlane.host.binding import Binding
from warmlane.host.gate import ModelGate
from warmlane.host.host import ModelHost
from warmlane.host.slot import HostPermit, Loader, ModelSlot
from warmlane.host.tasks import TurnTasks
from warmlane.host.view import HostView, ModelCard, Readiness, SessionCard

__all__ = [
    "Aliases",
    "Binding",
    "HostPermit",
    "HostView",
    "Loader",
    "ModelCard",
    "ModelGate",
    "ModelHost",
    "ModelSlot",
    "Readiness",
    "SessionCard",
    "TurnTasks",
]
