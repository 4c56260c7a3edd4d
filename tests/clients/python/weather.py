"""The turn every client is put through: a tool is asked for, it runs in the client, and its result is told back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MODEL = "simulated"
PLACE = "Zürich 🌧"
ASKED = f'USE_TOOL:get_weather {{"location": "{PLACE}"}}'
ANSWER = f"tool said: sun over {PLACE}"
PLACES = ["Bern", "Oslo", "東京"]
ASKED_OF_ALL = "\n".join(f'USE_TOOL:get_weather {{"location": "{place}"}}' for place in PLACES)
DESCRIPTION = "The weather somewhere."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"location": {"type": "string"}},
    "required": ["location"],
    "additionalProperties": False,
}


@dataclass
class Weather:
    """The tool itself. `asked` are the places it was called for, in order."""

    asked: list[str] = field(default_factory=list)

    def get(self, location: str) -> str:
        self.asked.append(location)
        return f"sun over {location}"
