"""Models with a few random weights, written as GGUF files: llama.cpp's own architectures in a size no package has.

Their vocabulary is bytes and ChatML's control tokens; one of them has pieces of words, as SentencePiece makes them, and
one has every pair of letters. Only printable characters are ever sampled, so a reply goes on to its limit, and replayed
text is the tokens that were sampled; but for the one with pairs, whose replies are never what their text would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

N_EMBD = 64
N_FF = 96
WINDOW = 32
"""Tokens that the windowed model's windowed layers see."""

_D_INNER, _D_STATE, _DT_RANK, _D_CONV = 2 * N_EMBD, 16, 4, 4
_HEADS, _KV_HEADS, _HEAD_DIM = 4, 2, 16
_EPSILON = 1e-6
_MERGED = ("q", "z")
_CONTROL = ("<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LETTERS = "abcdefgh"
_PIECES = ("▁h", "hi", "▁hi", "▁t", "th", "▁th", "he", "▁the", "▁[", "▁▁", "INST", "▁[INST", "▁a", "lo", "llo")
_INSTRUCTIONS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content + ' ' + eos_token }}"
    "{% else %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"
)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """How many tokens there are, and which of them are sampled."""

    n_tokens: int
    sampled: Sequence[int]


class _Model:
    """A file in the making. Shapes are NumPy's: the reverse of llama.cpp's."""

    def __init__(
        self,
        path: Path,
        architecture: str,
        n_layers: int,
        seed: int,
        *,
        vocabulary: Callable[[gguf.GGUFWriter], _Vocabulary] | None = None,
    ) -> None:
        self.writer = gguf.GGUFWriter(path, architecture)
        self._random = np.random.default_rng(seed)
        writer = self.writer
        writer.add_name(f"tiny {architecture}")
        writer.add_context_length(8192)
        writer.add_embedding_length(N_EMBD)
        writer.add_block_count(n_layers)
        writer.add_layer_norm_rms_eps(_EPSILON)
        self._vocabulary = (vocabulary or _bytes_vocabulary)(writer)

    def weight(self, name: str, *shape: int) -> None:
        """A matrix that keeps the size of what it is multiplied with."""
        self._add(name, self._random.normal(0.0, shape[-1] ** -0.5, shape))

    def filled(self, name: str, value: float, *shape: int) -> None:
        self._add(name, np.full(shape, value))

    def attention(self, layer: int) -> None:
        for part, width in (("q", _HEADS), ("k", _KV_HEADS), ("v", _KV_HEADS)):
            self.weight(f"blk.{layer}.attn_{part}.weight", width * _HEAD_DIM, N_EMBD)
        self.weight(f"blk.{layer}.attn_output.weight", N_EMBD, _HEADS * _HEAD_DIM)

    def feed_forward(self, layer: int) -> None:
        self.filled(f"blk.{layer}.ffn_norm.weight", 1.0, N_EMBD)
        self.weight(f"blk.{layer}.ffn_gate.weight", N_FF, N_EMBD)
        self.weight(f"blk.{layer}.ffn_up.weight", N_FF, N_EMBD)
        self.weight(f"blk.{layer}.ffn_down.weight", N_EMBD, N_FF)

    def mamba(self, layer: int) -> None:
        name = f"blk.{layer}.ssm_"
        self.weight(f"{name}in.weight", 2 * _D_INNER, N_EMBD)
        self.weight(f"{name}conv1d.weight", _D_INNER, _D_CONV)
        self.filled(f"{name}conv1d.bias", 0.0, _D_INNER)
        self.weight(f"{name}x.weight", _DT_RANK + 2 * _D_STATE, _D_INNER)
        self.weight(f"{name}dt.weight", _D_INNER, _DT_RANK)
        # Small steps and slow decay: what was said hundreds of tokens ago still shows.
        self.filled(f"{name}dt.bias", -3.0, _D_INNER)
        self._add(f"{name}a", -np.tile(np.geomspace(0.01, 1.0, _D_STATE), (_D_INNER, 1)))
        self.filled(f"{name}d", 1.0, _D_INNER)
        self.weight(f"{name}out.weight", N_EMBD, _D_INNER)

    def ssm_sizes(self) -> None:
        self.writer.add_ssm_conv_kernel(_D_CONV)
        self.writer.add_ssm_inner_size(_D_INNER)
        self.writer.add_ssm_state_size(_D_STATE)
        self.writer.add_ssm_time_step_rank(_DT_RANK)

    def finish(self) -> None:
        """Add the ends of the network and write the file."""
        n_vocab = self._vocabulary.n_tokens
        self._add("token_embd.weight", self._random.normal(0.0, 1.0, (n_vocab, N_EMBD)))
        self.filled("output_norm.weight", 1.0, N_EMBD)
        output = self._random.normal(0.0, 1.0, (n_vocab, N_EMBD))
        output[sorted(set(range(n_vocab)).difference(self._vocabulary.sampled))] = 0.0
        self._add("output.weight", output)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()

    def _add(self, name: str, values: np.ndarray) -> None:
        self.writer.add_tensor(name, values.astype(np.float32))


def _bytes_vocabulary(writer: gguf.GGUFWriter) -> _Vocabulary:
    tokens = [_spelled(byte) for byte in range(256)] + ["".join(_MERGED), *_CONTROL]
    types = [gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * len(_CONTROL)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(_MERGED)])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)
    return _Vocabulary(len(tokens), range(33, 127))


def _pairs_vocabulary(writer: gguf.GGUFWriter) -> _Vocabulary:
    """ChatML's bytes, and each pair of two letters as one token more. Only single letters are ever sampled."""
    pairs = [(a, b) for a in _LETTERS for b in _LETTERS]
    tokens = [_spelled(byte) for byte in range(256)] + [a + b for a, b in pairs] + list(_CONTROL)
    types = [gguf.TokenType.NORMAL] * (256 + len(pairs)) + [gguf.TokenType.CONTROL] * len(_CONTROL)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{a} {b}" for a, b in pairs])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)
    return _Vocabulary(len(tokens), [tokens.index(letter) for letter in _LETTERS])


def _pieces_vocabulary(writer: gguf.GGUFWriter) -> _Vocabulary:
    """SentencePiece's: it writes a space as `▁`, and puts one in front of the text it is given."""
    letters = [chr(code) for code in range(33, 127)]
    pieces = ["▁", *letters, *_PIECES]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = gguf.TokenType
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256, *[kinds.NORMAL] * len(pieces)]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [float(len(piece)) for piece in pieces])
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    writer.add_chat_template(_INSTRUCTIONS)
    return _Vocabulary(len(tokens), range(260, 260 + len(letters)))


def write_recurrent(path: Path, *, seed: int = 1) -> None:
    """Mamba: every layer keeps a running state, and nothing else."""
    model = _Model(path, "mamba", 2, seed)
    model.ssm_sizes()
    model.writer.add_feed_forward_length(0)
    model.writer.add_head_count(0)
    for layer in range(2):
        model.filled(f"blk.{layer}.attn_norm.weight", 1.0, N_EMBD)
        model.mamba(layer)
    model.finish()


def write_hybrid(path: Path, *, seed: int = 2) -> None:
    """Jamba: layers with a running state and layers with attention."""
    model = _Model(path, "jamba", 4, seed)
    model.ssm_sizes()
    model.writer.add_feed_forward_length(N_FF)
    model.writer.add_head_count(_HEADS)
    model.writer.add_head_count_kv([0, _KV_HEADS, 0, _KV_HEADS])
    for layer in range(4):
        model.filled(f"blk.{layer}.attn_norm.weight", 1.0, N_EMBD)
        if layer % 2:
            model.attention(layer)
        else:
            model.mamba(layer)
            model.filled(f"blk.{layer}.ssm_dt_norm.weight", 1.0, _DT_RANK)
            model.filled(f"blk.{layer}.ssm_b_norm.weight", 1.0, _D_STATE)
            model.filled(f"blk.{layer}.ssm_c_norm.weight", 1.0, _D_STATE)
        model.feed_forward(layer)
    model.finish()


def write_windowed(path: Path, *, seed: int = 3) -> None:
    """Gemma 3: layers that see the last `WINDOW` tokens, and layers that see all."""
    model = _Model(path, "gemma3", 4, seed)
    writer = model.writer
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_key_length(_HEAD_DIM)
    writer.add_value_length(_HEAD_DIM)
    writer.add_rope_freq_base(10_000.0)
    writer.add_sliding_window(WINDOW)
    writer.add_sliding_window_pattern([True, False, True, False])
    for layer in range(4):
        model.attention(layer)
        model.feed_forward(layer)
        for norm, width in (("attn_norm", N_EMBD), ("post_attention_norm", N_EMBD), ("post_ffw_norm", N_EMBD)):
            model.filled(f"blk.{layer}.{norm}.weight", 1.0, width)
        for norm in ("attn_q_norm", "attn_k_norm"):
            model.filled(f"blk.{layer}.{norm}.weight", 1.0, _HEAD_DIM)
    model.finish()


def write_pieces(path: Path, *, seed: int = 4) -> None:
    """Llama with a vocabulary as its second generation had, and a template of that time."""
    _llama(_Model(path, "llama", 2, seed, vocabulary=_pieces_vocabulary))


def write_pairs(path: Path, *, seed: int = 5) -> None:
    """Llama whose replies are letters one by one, where their text would be tokenized in pairs."""
    _llama(_Model(path, "llama", 2, seed, vocabulary=_pairs_vocabulary))


def _llama(model: _Model) -> None:
    model.writer.add_feed_forward_length(N_FF)
    model.writer.add_head_count(_HEADS)
    model.writer.add_head_count_kv(_KV_HEADS)
    model.writer.add_rope_dimension_count(_HEAD_DIM)
    for layer in range(2):
        model.filled(f"blk.{layer}.attn_norm.weight", 1.0, N_EMBD)
        model.attention(layer)
        model.feed_forward(layer)
    model.finish()


WRITERS: dict[str, Callable[[Path], None]] = {
    "recurrent": write_recurrent,
    "hybrid": write_hybrid,
    "windowed": write_windowed,
}


def _spelled(byte: int) -> str:
    """How GPT-2's vocabulary spells a byte: as itself if it can be seen, else as a character from U+0100 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in seen:
        return chr(byte)
    return chr(256 + sum(other not in seen for other in range(byte)))
