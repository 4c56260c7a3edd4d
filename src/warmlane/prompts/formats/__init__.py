"""How models write reasoning and tool calls, and how that is read back."""
