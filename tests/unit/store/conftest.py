from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from warmlane.store import ResponseStore, open_store


@pytest.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ResponseStore]:
    opened = await open_store("memory:" if request.param == "memory" else str(tmp_path / "data" / "warmlane.db"))
    yield opened
    await opened.close()
