"""Warmlane: an LLM server for agents in which a conversation's next turn costs only its new tokens."""

__version__ = "0.1.0"
