"""The decode thread: the one OS thread that loads, computes and frees a model.

Everything else talks to it through `post`, so tokenizing and cancelling never wait for a decode, and commands take
effect between two steps, in the order they were posted. Grammars are compiled on threads beside it, so that a large one
holds up nobody but its own turn.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from warmlane.engine.assembly import Assembled
from warmlane.engine.compiling import GrammarQueue
from warmlane.engine.grammar import Constraint, GrammarError
from warmlane.engine.messages import TurnFailed, TurnOutput
from warmlane.engine.protocol import GenerateRequest
from warmlane.engine.scheduler import Scheduler

HOUSEKEEPING_S = 1.0
"""How often an idle engine looks for conversations to write to disk."""

FLUSH_S = 4.0
"""How long the end may take to write warm conversations to disk."""

PostedCommand = Callable[[Scheduler], None]


class DecodeThread:
    """Runs a scheduler until `stop`.

    `on_outputs` gets what each step produced, and `on_death` the exception that ended the thread unasked (a bug, or a
    native failure that Python sees); both are called on the thread.
    """

    def __init__(
        self,
        assemble: Callable[[], Assembled],
        *,
        on_outputs: Callable[[list[TurnOutput]], None],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._assemble = assemble
        self._on_outputs = on_outputs
        self._on_death = on_death
        self._commands: queue.SimpleQueue[PostedCommand | None] = queue.SimpleQueue()
        self._started: Future[Assembled] = Future()
        self._grammars = GrammarQueue(self._compile, self._compiled)
        self._thread = threading.Thread(target=self._run, name="warmlane-decode", daemon=True)

    def start(self) -> Future[Assembled]:
        """Load the model; the future carries it, or what went wrong."""
        self._thread.start()
        return self._started

    def post(self, command: PostedCommand) -> None:
        """Run `command` on the thread between two steps. It must not raise."""
        self._commands.put(command)

    def submit(self, turn: int, request: GenerateRequest) -> None:
        """Queue a turn once the model is loaded, and have its grammar compiled."""
        self.post(lambda scheduler: scheduler.submit(turn, request))
        if request.grammar is not None:
            self._grammars.submit(turn, request.grammar, special_text=request.special_text)

    def cancel(self, turn: int) -> None:
        """End a turn without another event; a grammar of it that waits to be compiled is dropped at once."""
        self._grammars.drop(turn)
        self.post(lambda scheduler: scheduler.cancel(turn))

    def stop(self) -> None:
        """Free the model and end the thread after the step it is in. Does not wait; `join` does."""
        self._commands.put(None)

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            assembled = self._assemble()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._grammars.start()
        self._started.set_result(assembled)
        try:
            while self._obey(assembled.scheduler):
                outputs = assembled.scheduler.step()
                if outputs:
                    self._tell(outputs)
        except BaseException as error:
            self._on_death(error)
        else:
            assembled.scheduler.close(FLUSH_S)
        finally:
            # Compiling reads the model's vocabulary.
            self._grammars.close()
            assembled.backend.close()

    def _compile(self, grammar: str, special_text: bool) -> Constraint:
        return self._started.result().grammars.compile(grammar, special_text=special_text)

    def _compiled(self, turn: int, outcome: Constraint | GrammarError) -> None:
        self.post(lambda scheduler: scheduler.compiled(turn, outcome))

    def _tell(self, outputs: list[TurnOutput]) -> None:
        for output in outputs:
            if isinstance(output.event, TurnFailed):
                self._grammars.drop(output.turn)
        self._on_outputs(outputs)

    def _obey(self, scheduler: Scheduler) -> bool:
        """Run the posted commands, waiting for one if there is nothing to compute. False once told to stop."""
        while True:
            try:
                command = self._next_command(scheduler)
            except queue.Empty:
                return True
            if command is None:
                return False
            command(scheduler)
            # Here as well: who is asked something all the time is never idle for long enough to come to its next step.
            scheduler.cache.tick()

    def _next_command(self, scheduler: Scheduler) -> PostedCommand | None:
        rests_in_s = scheduler.rests_in_s
        if scheduler.has_work or rests_in_s == 0.0:
            return self._commands.get(block=False)
        waits = [rests_in_s, HOUSEKEEPING_S if scheduler.cache.has_unsaved else None]
        return self._commands.get(timeout=min((s for s in waits if s is not None), default=None))
