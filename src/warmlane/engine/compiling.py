"""The threads beside the decode thread that compile the grammars of turns."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from warmlane.engine.grammar import Constraint, GrammarError

log = logging.getLogger(__name__)

COMPILERS = 2
"""Grammars compiled at once: one that takes long does not hold up the next."""

Compile = Callable[[str, bool], Constraint]
"""Compiles a grammar, given whether control tokens are text in it. May raise `GrammarError`."""


class GrammarQueue:
    """The grammars of turns, compiled first come first served; used from any thread.

    A turn that is over is dropped, so there are never more in the queue than turns that run: what bounds those bounds
    it. A grammar that is being compiled is compiled to its end. `on_compiled` is called on a compiler's thread.
    """

    def __init__(
        self,
        compile_grammar: Compile,
        on_compiled: Callable[[int, Constraint | GrammarError], None],
        *,
        compilers: int = COMPILERS,
    ) -> None:
        self._compile_grammar = compile_grammar
        self._on_compiled = on_compiled
        self._waiting: dict[int, tuple[str, bool]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"warmlane-grammar-{i}", daemon=True) for i in range(compilers)
        ]

    def __len__(self) -> int:
        """How many wait for a compiler."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin with what was submitted already."""
        for thread in self._threads:
            thread.start()

    def submit(self, turn: int, grammar: str, *, special_text: bool) -> None:
        """Have the grammar of a turn compiled. A no-op once closed: the turn has ended as well."""
        with self._changed:
            if not self._closed:
                self._waiting[turn] = (grammar, special_text)
                self._changed.notify()

    def drop(self, turn: int) -> None:
        """The turn is over. A no-op if nothing of it waits."""
        with self._changed:
            self._waiting.pop(turn, None)

    def close(self) -> None:
        """Drop what waits, and return once nothing is compiled any more. Only after `start`."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            turn, grammar, special_text = taken
            self._on_compiled(turn, self._outcome(grammar, special_text))

    def _take(self) -> tuple[int, str, bool] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            turn = next(iter(self._waiting))
            return (turn, *self._waiting.pop(turn))

    def _outcome(self, grammar: str, special_text: bool) -> Constraint | GrammarError:
        try:
            return self._compile_grammar(grammar, special_text)
        except GrammarError as error:
            return error
        except Exception:
            log.exception("a grammar of %d characters could not be compiled", len(grammar))
            return GrammarError("The grammar could not be compiled.")
