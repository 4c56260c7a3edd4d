"""What the scheduler and the prefix cache know of a model: cells, sequences, and a way to compute the next logits.

A *cell* holds the keys and values of one token at one position; it belongs to one or more *sequences*, small integers
in `range(n_seq_max)`. A backend is used by one thread, from its construction to `close` (llama.cpp decodes at less than
half speed when the thread changes); only its `tokenizer` may be used from others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from warmlane.engine.protocol import SamplingParams
from warmlane.engine.vectors import Int32Array

LogitsRow = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]
Allocate = Callable[[int], ByteArray | None]
"""Room for exactly so many bytes, or None if there is none to be had."""


class CacheFull(Exception):
    """No cells for this batch; nothing was changed. Where only `seq` finds none, in a place of its own, there may be
    some for it beside the others if it is dropped and computed again."""

    def __init__(self, seq: int | None = None) -> None:
        super().__init__(seq)
        self.seq = seq


class SequenceFault(Exception):
    """One sequence of the batch cannot go on; nothing was changed, and the batch without it may work. `memory`: there
    was none for it."""

    def __init__(self, seq: int, message: str, *, memory: bool = False) -> None:
        super().__init__(message)
        self.seq = seq
        self.memory = memory


class DecodeFailed(Exception):
    """The batch failed as a whole. Some rows may have got cells: truncate each sequence to what it held before.
    `memory`: there was none to compute it."""

    def __init__(self, message: str, *, memory: bool = False) -> None:
        super().__init__(message)
        self.memory = memory


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive tokens of one sequence, the first at `position` (= the sequence's length). With `wants_logits` the
    logits behind the last token are computed."""

    seq: int
    position: int
    tokens: Int32Array
    wants_logits: bool


class Decoded(Protocol):
    """The result of one `decode`, valid until the next call of the backend that mutates it."""

    @property
    def deferred(self) -> frozenset[int]:
        """Sequences whose slice was not computed yet, got no cells, and must be handed in again."""
        ...

    def logits(self, index: int) -> LogitsRow:
        """Logits (shape `[n_vocab]`, read-only by agreement) behind slice `index`, which wanted them and was not
        deferred. A view, valid as long as this object."""
        ...


class Tokenizer(Protocol):
    """Text to tokens and back. Immutable and safe to use from any thread."""

    def tokenize(self, text: str, *, special: bool, bos: bool, joined: bool = False) -> list[int]:
        """Token ids. See `protocol.TextPiece` for what the options mean."""
        ...

    @property
    def n_vocab(self) -> int: ...

    @property
    def eog(self) -> tuple[int, ...]:
        """The tokens that end a reply, the usual one first."""
        ...

    @property
    def control(self) -> frozenset[int]:
        """The control tokens, those that end a reply included."""
        ...

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a sampled token adds to the reply. Control tokens add their own text with `special`, and nothing
        without."""
        ...

    def spelled(self, token: int) -> bytes:
        """The bytes that stand for the token in a prompt: those of `piece`, or a control token's own text."""
        ...

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a reply."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """Facts fixed at load time.

    `n_cells` is shared by all sequences (where some are `set_apart`, by those in either context); `window` is the
    longest sequence in tokens; `n_batch` the most tokens of one `decode`. Without `can_truncate` a sequence can only be
    extended or dropped, and only shared at its full length.
    Where `attention_window` is not 0, some layers see that many tokens only (the new one included), and a sequence may
    forget at any time what lies further back from its end; then `can_cut` is to be asked before it is cut.
    Where `idle_cells_cost`, cells that no sequence of the batch sees slow it down nevertheless.
    `fingerprint` names the weights, `tokenizer` the vocabulary, `kv_format` whatever else the bytes of a snapshot
    depend on.
    """

    model: str
    fingerprint: str
    tokenizer: str
    kv_format: str
    n_cells: int
    n_seq_max: int
    n_batch: int
    n_vocab: int
    window: int
    can_truncate: bool
    attention_window: int
    idle_cells_cost: bool
    chat_template: str | None
    bos_token: str
    eos_token: str
    add_bos: bool
    special_tokens: tuple[str, ...]
    sampling: SamplingParams


class Backend(Protocol):
    """A loaded model. Mutating calls: `decode`, `share`, `set_apart`, `truncate`, `drop`, `restore`, `clear`,
    `close`."""

    @property
    def info(self) -> BackendInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        """Compute one batch: at most one slice a sequence, at most `n_batch` tokens. Every token gets a cell.

        Raises `CacheFull`, `SequenceFault`, `DecodeFailed`.
        """
        ...

    def can_cut(self, seq: int, length: int) -> bool:
        """Whether `seq`, which holds at least `length` cells, still has all that a token behind the first `length` of
        them needs: whether it can be shared or truncated there. If not, it cannot be at any shorter length but 0."""
        ...

    def share(self, src: int, dst: int, length: int) -> bool:
        """Make the first `length` cells of `src` also those of `dst`, which must be empty; copies nothing.

        False if `can_cut` is, or if `src` was set apart and there are too few cells to bring it back; `dst` is then
        empty.
        """
        ...

    def set_apart(self, seq: int, length: int) -> bool:
        """Compute what follows the sequence's `length` cells where it does not slow down others, until it is dropped,
        cut to less, shared beyond them, or out of room there. False, and nothing is changed, if there is no such
        place."""
        ...

    def shared_as_is(self, seq: int) -> int | None:
        """How many cells of a sequence that was set apart can be shared without its being brought back, which takes
        copies; None for any other."""
        ...

    def truncate(self, seq: int, length: int) -> bool:
        """Keep the first `length` cells. False if `can_cut` is; `seq` may then hold anything and must be dropped."""
        ...

    def drop(self, seq: int) -> None:
        """Empty the sequence; cells of no other sequence become free."""
        ...

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        """A copy of the sequence's cells from position `start` on, up to `end` if it is given, shared ones included, in
        the array that `allocate` gives for it; None if it gives none. Changes nothing. `start` is 0, and there is no
        `end`, if the model cannot truncate. Layers with a window may leave out what they do not see from the sequence's
        end."""
        ...

    def joined(self, parts: Sequence[ByteArray], allocate: Allocate) -> ByteArray | None:
        """One snapshot of what these hold, which follow one another, in the array that `allocate` gives for it; None if
        it gives none, or if they cannot be joined: those of a model that sees all of a sequence and can truncate it
        can."""
        ...

    def restore(self, seq: int, data: ByteArray, begin: int, end: int) -> bool:
        """Give `seq`, which holds the positions before `begin`, those from there to `end` out of a snapshot that has
        them. Takes as many free cells as the snapshot has at most, and frees those not asked for. A model that cannot
        truncate restores whole snapshots into empty sequences only.

        False (and `seq` is unchanged) if there are too few cells, the snapshot is of another kind, or a token at `end`
        would not find all it needs. Damage may go unnoticed, so keep a checksum.
        """
        ...

    def clear(self) -> None:
        """Empty every sequence."""
        ...

    def close(self) -> None:
        """Free the model. Idempotent; nothing else may be called afterwards."""
        ...
