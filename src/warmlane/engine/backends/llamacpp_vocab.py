"""The vocabulary of a GGUF model."""

from __future__ import annotations

import ctypes
import hashlib

from llama_cpp import llama_cpp as lib

from warmlane.engine.joining import joined as tokens_behind

_PIECE_BYTES = 256


class GgufTokenizer:
    """Implements `Tokenizer` over a llama.cpp vocab, which is immutable; it must not outlive the model."""

    def __init__(self, vocab: lib.llama_vocab_p) -> None:
        self._vocab = vocab
        self.n_vocab = int(lib.llama_vocab_n_tokens(vocab))
        self.add_bos = bool(lib.llama_vocab_get_add_bos(vocab))
        self._bos = int(lib.llama_vocab_bos(vocab))
        self._pieces: dict[tuple[int, bool], bytes] = {}
        texts = [lib.llama_vocab_get_text(vocab, i) or b"" for i in range(self.n_vocab)]
        kinds = [int(lib.llama_vocab_get_attr(vocab, i)) for i in range(self.n_vocab)]
        control = lib.LLAMA_TOKEN_ATTR_CONTROL
        self.special_tokens = tuple(
            text.decode("utf-8", "replace") for text, kind in zip(texts, kinds, strict=True) if kind & control and text
        )
        eos = int(lib.llama_vocab_eos(vocab))
        ending = [i for i in range(self.n_vocab) if lib.llama_vocab_is_eog(vocab, i)]
        self.eog = tuple(sorted(ending, key=lambda i: i != eos))
        self._eog = frozenset(ending)
        self.control = self._eog.union(i for i, kind in enumerate(kinds) if kind & control)
        digest = hashlib.sha256()
        for text, kind in zip(texts, kinds, strict=True):
            digest.update(len(text).to_bytes(4, "little") + text + kind.to_bytes(4, "little"))
        self.fingerprint = digest.hexdigest()
        self._adds_space = b"".join(map(self.piece, self._tokenize("x", False))) == b" x"

    @property
    def bos_text(self) -> str:
        return self._text(self._bos)

    @property
    def eos_text(self) -> str:
        return self._text(int(lib.llama_vocab_eos(self._vocab)))

    @property
    def warmup_token(self) -> int:
        """Some token that every model accepts first."""
        return max(self._bos, 0)

    def tokenize(self, text: str, *, special: bool, bos: bool, joined: bool = False) -> list[int]:
        """Token ids; lone surrogates become `?`."""
        opening = [self._bos] if bos and self.add_bos and self._bos >= 0 else []
        if joined and self._adds_space and not opening:
            return tokens_behind(lambda t: self._tokenize(t, special), text)
        return opening + self._tokenize(text, special)

    def _tokenize(self, text: str, special: bool) -> list[int]:
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        ids = (lib.llama_token * room)()
        n = lib.llama_tokenize(self._vocab, data, len(data), ids, room, False, special)
        if n < 0:
            room = -n
            ids = (lib.llama_token * room)()
            n = lib.llama_tokenize(self._vocab, data, len(data), ids, room, False, special)
        return list(ids[:n])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        special = special and token in self.control
        known = self._pieces.get((token, special))
        if known is None:
            known = self._pieces[token, special] = self._read_piece(token, special)
        return known

    def spelled(self, token: int) -> bytes:
        return self.piece(token) or self._text(token).encode()

    def is_eog(self, token: int) -> bool:
        return token in self._eog

    def _read_piece(self, token: int, special: bool) -> bytes:
        size = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def _text(self, token: int) -> str:
        return (lib.llama_vocab_get_text(self._vocab, token) or b"").decode("utf-8", "replace") if token >= 0 else ""
