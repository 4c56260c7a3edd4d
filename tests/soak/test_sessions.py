"""The state machine over registry and lane, for long. `WARMLANE_SOAK_EXAMPLES` sets how many examples (20,000)."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from support.session_machine import SessionMachine

TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(
    max_examples=int(os.environ.get("WARMLANE_SOAK_EXAMPLES", "20000")),
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSessionMachine.pytestmark = [pytest.mark.timeout(7200)]
