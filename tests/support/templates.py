"""Chat templates of the kinds that models come with, written short."""

from __future__ import annotations

QWEN = r"""{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% endif %}
{{- '# Tools\n\nAnswer with <tool_call></tool_call> to call one of:\n<tools>' }}
{%- for tool in tools %}{{- '\n' + (tool | tojson) }}{% endfor %}
{{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set last = namespace(query=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.query = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}
{%- if m.reasoning_content and loop.index0 > last.query %}
{{- '<think>\n' + m.reasoning_content.strip('\n') + '\n</think>\n\n' }}
{%- endif %}
{{- m.content }}
{%- for call in m.tool_calls or [] %}
{{- '\n' if m.content or not loop.first }}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}"""
"""Calls in the Hermes form; shows the reasoning of the replies since the last question, and takes a switch for it."""

R1 = r"""{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|User|>' + m.content }}{% endif %}
{%- if m.role == 'assistant' %}{{- '<|Assistant|>' + m.content.split('</think>')[-1] + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|Assistant|><think>\n' }}{% endif %}"""
"""Opens reasoning itself, and never shows any again."""

LLAMA = r"""{{- bos_token + '<|start_header_id|>system<|end_header_id|>\n\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content | trim }}{% set messages = messages[1:] %}{% endif %}
{{- '<|eot_id|>' }}
{%- for m in messages %}
{%- if m.tool_calls is defined and m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{- raise_exception('one tool call at once') }}{% endif %}
{%- set function = m.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + function.name + '", "parameters": ' }}
{{- (function.arguments | tojson) + '}<|eot_id|>' }}
{%- elif m.role in ('tool', 'ipython') %}
{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + (m.content | tojson) + '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
{%- if m.role == 'user' and loop.first and tools %}
{{- 'Answer with {"name": function name, "parameters": {its arguments}} to call one of:\n\n' }}
{%- for tool in tools %}{{- (tool | tojson(indent=4)) + '\n\n' }}{% endfor %}
{%- endif %}
{{- (m.content | trim) + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""
"""One call a message and no text beside it; calls are bare JSON."""

MISTRAL = r"""{{- bos_token }}
{%- set turn = namespace(n=0) %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
{%- if (m.role == 'user') != (turn.n % 2 == 0) %}{{- raise_exception('roles must alternate') }}{% endif %}
{%- set turn.n = turn.n + 1 %}
{%- endif %}
{%- if m.role == 'user' %}
{%- if tools and loop.last %}{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{- '[INST] ' + m.content + '[/INST]' }}
{%- elif m.role == 'assistant' and m.tool_calls %}
{{- '[TOOL_CALLS] [' }}
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{- raise_exception('ids have nine letters') }}{% endif %}
{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- ', "id": "' + call.id + '"}' + (', ' if not loop.last else ']') }}
{%- endfor %}
{{- eos_token }}
{%- elif m.role == 'assistant' %}
{{- ' ' + m.content + eos_token }}
{%- elif m.role == 'tool' %}
{%- if m.tool_call_id | length != 9 %}{{- raise_exception('ids have nine letters') }}{% endif %}
{{- '[TOOL_RESULTS] {"content": ' + (m.content | tojson) }}
{{- ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- else %}{{- raise_exception('unknown role') }}
{%- endif %}
{%- endfor %}"""
"""No generation prompt, no system messages, turns that alternate, and ids of nine letters."""

SMOL = r"""{%- for m in messages %}
{%- if loop.first and m.role != 'system' %}{{- '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""
"""Knows nothing of tools, and prints any role."""

TEXT_ARGUMENTS = r"""{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and m.content is none %}
{%- for call in m.tool_calls %}
{{- '<tool>' + call.function.name + '\n' + call.function.arguments + '</tool>' }}
{%- endfor %}
{%- else %}{{- m.content }}{% endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""
"""Wants arguments as text, and a message of calls without any content."""

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|User|>", "<|Assistant|>",
    "<|end|>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]", "</s>",
)  # fmt: skip
"""Their control tokens."""
