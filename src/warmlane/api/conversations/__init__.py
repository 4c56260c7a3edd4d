"""OpenAI's conversation objects."""
