"""The state machine over registry and lane, as part of every test run. `make soak` runs it for long."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from support.session_machine import SessionMachine

SOAK = os.environ.get("WARMLANE_SOAK") == "1"

TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(
    max_examples=20_000 if SOAK else 200,
    stateful_step_count=80 if SOAK else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
