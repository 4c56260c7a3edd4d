"""How models write reasoning and tool calls, and how that is read back.

`layouts` describes how each family's replies are read, `writing` how they are written; one parser and one builder of
grammars work by those descriptions.
"""

from warmlane.prompts.formats.base import OutputFormat, OutputParser, ParsedEvent
from warmlane.prompts.formats.families import detect_format, format_named, format_names

__all__ = ["OutputFormat", "OutputParser", "ParsedEvent", "detect_format", "format_named", "format_names"]
