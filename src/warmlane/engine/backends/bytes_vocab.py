"""The simulated engine's vocabulary: one token a byte, and a few control tokens; and its chat template."""

from __future__ import annotations

import re

IM_START, IM_END, END_OF_TEXT = 256, 257, 258
SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
N_VOCAB = 256 + len(SPECIAL_TOKENS)

_SPECIAL_IDS = {text: 256 + i for i, text in enumerate(SPECIAL_TOKENS)}
_SPECIAL = re.compile("|".join(re.escape(text) for text in SPECIAL_TOKENS))

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}{{ (tool | tojson) + '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['reasoning_content'] %}{{ '<think>' + message['reasoning_content'] + '</think>' }}{% endif %}
{{- message['content'] or '' }}
{%- for call in message['tool_calls'] or [] %}
{%- set function = call['function'] or call %}
{{- '\\n' if message['content'] or not loop.first else '' }}
{{- '<tool_call>\\n{"name": "' + function['name'] + '", "arguments": ' }}
{{- function['arguments'] if function['arguments'] is string else function['arguments'] | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""ChatML, with calls in the Hermes form and reasoning in `<think>`."""


class ByteTokenizer:
    """UTF-8 bytes as token ids 0 to 255; control tokens from 256 on, which text only becomes with `special`."""

    n_vocab = N_VOCAB
    eog = (IM_END, END_OF_TEXT)
    control = frozenset(range(256, N_VOCAB))

    def tokenize(self, text: str, *, special: bool, bos: bool, joined: bool = False) -> list[int]:
        """Token ids; nothing is put in front, so `bos` and `joined` change nothing. Lone surrogates become `?`."""
        if not special:
            return list(_encode(text))
        ids: list[int] = []
        at = 0
        for control in _SPECIAL.finditer(text):
            ids += _encode(text[at : control.start()])
            ids.append(_SPECIAL_IDS[control[0]])
            at = control.end()
        ids += _encode(text[at:])
        return ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return self.spelled(token) if special or token < 256 else b""

    def spelled(self, token: int) -> bytes:
        return bytes((token,)) if token < 256 else SPECIAL_TOKENS[token - 256].encode()

    def is_eog(self, token: int) -> bool:
        return token in (IM_END, END_OF_TEXT)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
