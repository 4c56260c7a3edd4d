"""The state machine over registry and lane, as part of every test run; `tests/soak` runs it for long."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from support.session_machine import SessionMachine

TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
