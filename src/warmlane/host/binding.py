"""A served name bound to one loaded model and everything that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from warmlane.engine.protocol import Engine
from warmlane.host.gate import ModelGate
from warmlane.sessions import Lane, SessionRegistry


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Binding:
    """One loaded model under its served name. Compared by identity: a reload makes a new one.

    The lane and the registry live and die with the model object, the gate with the name; `created` is in Unix seconds.
    """

    name: str
    engine: Engine
    lane: Lane
    registry: SessionRegistry
    created: int
    gate: ModelGate = field(default_factory=ModelGate)
