"""A `llama_batch` over NumPy arrays that are filled without a Python loop over tokens."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as lib

from warmlane.engine.backends.base import Slice


class NativeBatch:
    """Room for `n_batch` tokens, each of one sequence. `fill` overwrites what the last call put in."""

    def __init__(self, n_batch: int) -> None:
        self._token = np.zeros(n_batch, dtype=np.int32)
        self._pos = np.zeros(n_batch, dtype=np.int32)
        self._seq = np.zeros(n_batch, dtype=np.int32)
        self._n_seq = np.ones(n_batch, dtype=np.int32)
        self._wants = np.zeros(n_batch, dtype=np.int8)
        self._seq_pointers = self._seq.ctypes.data + 4 * np.arange(n_batch, dtype=np.uintp)
        self.native = lib.llama_batch(
            0,
            self._token.ctypes.data_as(ctypes.POINTER(lib.llama_token)),
            None,
            self._pos.ctypes.data_as(ctypes.POINTER(lib.llama_pos)),
            self._n_seq.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            self._seq_pointers.ctypes.data_as(ctypes.POINTER(ctypes.POINTER(lib.llama_seq_id))),
            self._wants.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(self, slices: Sequence[Slice]) -> list[int]:
        """Write the slices one behind the other; returns the batch row of each slice's last token."""
        last_rows: list[int] = []
        n = 0
        for piece in slices:
            end = n + piece.tokens.size
            self._token[n:end] = piece.tokens
            self._pos[n:end] = np.arange(piece.position, piece.position + piece.tokens.size)
            self._seq[n:end] = piece.seq
            self._wants[n:end] = 0
            self._wants[end - 1] = piece.wants_logits
            last_rows.append(end - 1)
            n = end
        self.native.n_tokens = n
        return last_rows
