from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from unit.engine.harness import held
from warmlane.engine.backends.base import Slice
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.cells import CellTable
from warmlane.engine.chains import Chain, ChainPool, NoSequence
from warmlane.engine.protocol import OwnerId
from warmlane.engine.vectors import IntVector, common_prefix

A, B = b"a" * 16, b"b" * 16


def owner(serial: int) -> OwnerId:
    return OwnerId(1, serial)


def ids(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)


class Pool:
    """A pool and its backend; `compute` does what a turn without output does."""

    def __init__(
        self,
        *,
        n_cells: int = 64,
        n_seq_max: int = 4,
        sharing: bool = True,
        can_truncate: bool = True,
        attention_window: int = 0,
    ) -> None:
        self.backend = SimulatedBackend(
            SimulatedSettings(
                n_cells=n_cells, n_seq_max=n_seq_max, can_truncate=can_truncate, attention_window=attention_window
            )
        )
        self.pool = ChainPool(self.backend, sharing=sharing)

    def place(self, serial: int, text: str, domain: bytes = A) -> tuple[Chain, int]:
        chain = self.pool.place(owner(serial), domain, ids(text))
        return chain, len(chain)

    def extend(self, chain: Chain, text: str) -> None:
        rest = ids(text)[len(chain) :]
        assert self.pool.reserve(rest.size)
        self.backend.decode([Slice(chain.seq, len(chain), rest, wants_logits=False)])
        self.pool.grow(chain, rest)

    def compute(self, serial: int, text: str, domain: bytes = A) -> int:
        chain, reused = self.place(serial, text, domain)
        self.extend(chain, text)
        self.pool.stop(chain)
        return reused


@pytest.mark.parametrize(
    ("a", "b", "n"), [("", "", 0), ("", "x", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("ab", "abc", 2), ("x", "y", 0)]
)
def test_common_prefix(a: str, b: str, n: int) -> None:
    assert common_prefix(ids(a), ids(b)) == common_prefix(ids(b), ids(a)) == n


def test_int_vector_grows_and_shrinks() -> None:
    vector = IntVector([1, 2])
    vector.extend(np.arange(100, dtype=np.int32))
    vector.append(7)
    vector.truncate(3)
    vector.append(9)
    assert vector.view.tolist() == [1, 2, 0, 9]
    vector.truncate(50)
    assert len(vector) == 4


def test_a_cell_is_free_when_its_last_holder_is_gone() -> None:
    table = CellTable(10)
    cells = table.take(4)
    table.hold(cells[:2])
    assert table.only_holder(cells) == 2
    table.give_back(cells)
    assert table.n_used == 2
    table.give_back(cells[:2])
    assert table.n_used == 0
    with pytest.raises(IndexError):
        table.take(11)


def test_a_new_owner_shares_what_a_live_one_has_computed_so_far() -> None:
    p = Pool()
    chain, _ = p.place(1, "hello world")
    p.extend(chain, "hello")
    assert p.compute(2, "hello world") == 5
    assert p.pool.table.n_used == p.backend.n_used == 11


def test_the_last_token_is_always_computed() -> None:
    p = Pool()
    p.compute(1, "hello")
    assert p.compute(2, "hello") == 4
    assert p.compute(1, "hello") == 4


def test_an_owner_extends_its_own_chain_and_cuts_it_where_it_differs() -> None:
    p = Pool()
    p.compute(1, "hello world")
    assert p.compute(1, "hello world again") == 11
    assert p.compute(1, "hello there") == 6
    assert len(p.pool) == 1
    assert p.backend.n_used == 11


def test_domains_never_share() -> None:
    p = Pool()
    p.compute(1, "hello world", A)
    assert p.compute(2, "hello world", B) == 0
    p.pool.release(owner(1), purge=False)
    assert p.compute(3, "hello world", B) == 10
    assert p.compute(4, "hello world", A) == 10
    assert p.compute(4, "hello world", B) == 10


def test_a_released_chain_stays_until_it_is_purged_or_adds_nothing() -> None:
    p = Pool()
    p.compute(1, "hello world")
    p.pool.release(owner(1), purge=False)
    assert p.pool.of(owner(1)) is None
    assert p.pool.cells_by_state() == (0, 0, 11)
    p.compute(2, "hello world, again")
    p.pool.release(owner(2), purge=False)
    assert len(p.pool) == 1
    p.compute(3, "hello")
    p.pool.release(owner(3), purge=False)
    assert len(p.pool) == 1
    p.compute(4, "else")
    p.pool.release(owner(4), purge=True)
    p.pool.release(owner(5), purge=True)
    assert len(p.pool) == 1


def test_a_shared_cell_counts_for_its_liveliest_chain() -> None:
    p = Pool()
    p.compute(1, "hello world")
    p.pool.release(owner(1), purge=False)
    chain, _ = p.place(2, "hello you")
    p.extend(chain, "hello you")
    assert p.pool.cells_by_state() == (9, 0, 5)
    p.pool.stop(chain)
    assert p.pool.cells_by_state() == (0, 9, 5)


def test_what_was_computed_twice_is_not_counted_as_held_by_a_running_chain() -> None:
    p = Pool()
    one, _ = p.place(1, "the same words, one")
    two, _ = p.place(2, "the same words, two")
    p.extend(one, "the same words, one")
    p.extend(two, "the same words, two")
    p.pool.stop(two)
    wanted = ids("the same words, two and more")
    assert p.pool.held_by_running(owner(2), A, wanted) == 0
    assert p.pool.held_by_running(owner(3), A, ids("the same words, one more")) == len("the same words, one")
    assert p.pool.held_by_running(owner(2), B, wanted) == 0


def test_the_least_recently_used_goes_first_and_running_chains_never() -> None:
    p = Pool(n_cells=30)
    p.compute(1, "aaaaaaaaaa")
    p.compute(2, "bbbbbbbbbb")
    p.compute(1, "aaaaaaaaaaa")
    chain, _ = p.place(3, "cccccccccccc")
    p.extend(chain, "cccccccccccc")
    assert p.pool.of(owner(2)) is None
    assert p.pool.of(owner(1)) is not None
    assert not p.pool.reserve(30 - 12 + 1)
    assert p.pool.reserve(30 - 12)
    assert len(p.pool) == 1


def test_sequences_run_out_only_when_all_run() -> None:
    p = Pool(n_seq_max=2)
    p.compute(1, "aa")
    p.place(2, "bb")
    p.place(3, "cc")
    assert p.pool.of(owner(1)) is None
    with pytest.raises(NoSequence):
        p.place(4, "dd")


def test_the_last_free_sequence_is_taken_even_from_the_best_match() -> None:
    p = Pool(n_seq_max=2)
    p.place(1, "aa")
    p.compute(2, "hello")
    p.pool.release(owner(2), purge=False)
    assert p.compute(3, "hello you") == 0
    assert p.pool.table.n_used == p.backend.n_used == 9


def test_without_sharing_only_the_owner_reuses() -> None:
    p = Pool(sharing=False)
    p.compute(1, "hello")
    assert p.compute(1, "hello you") == 5
    assert p.compute(2, "hello you") == 0
    p.pool.release(owner(2), purge=False)
    assert p.backend.n_used == 0


def test_a_backend_that_cannot_cut_reuses_whole_chains_only() -> None:
    p = Pool(can_truncate=False)
    p.compute(1, "hello")
    assert p.compute(2, "hello you") == 5
    assert p.compute(2, "hello there") == 5
    assert p.compute(1, "help") == 0
    assert p.pool.table.n_used == p.backend.n_used


def test_a_backend_that_forgets_reuses_what_it_can_cut_to() -> None:
    p = Pool(attention_window=4)
    p.compute(1, "hello you")
    assert p.compute(2, "hello you two") == 9
    assert p.compute(3, "hello yet") == 0
    assert p.compute(4, "hell") == 0
    assert p.compute(4, "hello") == 4
    assert p.pool.table.n_used == p.backend.n_used


def test_a_chain_that_another_cannot_be_cut_to_is_kept_beside_it() -> None:
    p = Pool(attention_window=4)
    p.compute(1, "hello")
    p.pool.release(owner(1), purge=False)
    p.compute(2, "hello you two")
    p.pool.release(owner(2), purge=False)
    assert p.compute(3, "hello there") == 5
    whole = Pool()
    for serial, text in ((1, "hello"), (2, "hello you two")):
        whole.compute(serial, text)
        whole.pool.release(owner(serial), purge=False)
    assert len(whole.pool) == 1


class PoolMachine(RuleBasedStateMachine):
    """Any order of placements, growth, cuts, releases and evictions: the accounts stay exact, every chain holds the
    cells it says, and a placement finds the longest prefix its domain has."""

    owners = st.integers(1, 5)
    texts = st.text(alphabet="ab", min_size=1, max_size=12)
    domains = st.sampled_from([A, B])

    def __init__(self) -> None:
        super().__init__()
        self.p = Pool(n_cells=40, n_seq_max=4)
        self.running: dict[int, tuple[Chain, str]] = {}

    @rule(serial=owners, text=texts, domain=domains)
    def place(self, serial: int, text: str, domain: bytes) -> None:
        if serial in self.running or len(self.running) == 4:
            return
        best = max((common_prefix(c.tokens.view, ids(text)[:-1]) for c in self.p.pool if c.domain == domain), default=0)
        chain, reused = self.p.place(serial, text, domain)
        assert reused == best or (reused == 0 and len(self.running) == 3)
        self.running[serial] = (chain, text)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), n=st.integers(1, 12))
    def grow(self, data: st.DataObject, n: int) -> None:
        chain, text = self.running[data.draw(st.sampled_from(sorted(self.running)))]
        wanted = text[: len(chain) + n]
        if len(wanted) > len(chain) and self.p.pool.reserve(len(wanted) - len(chain)):
            self.p.extend(chain, wanted)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        chain, _ = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self.p.pool.stop(chain)

    @rule(serial=owners, purge=st.booleans())
    def release(self, serial: int, purge: bool) -> None:
        if serial not in self.running:
            self.p.pool.release(owner(serial), purge=purge)

    @rule(serial=owners, length=st.integers(0, 12))
    def truncate(self, serial: int, length: int) -> None:
        chain = self.p.pool.of(owner(serial))
        if chain is not None and serial not in self.running:
            assert self.p.pool.truncate(chain, length)
            assert len(chain) <= length

    @rule()
    def evict(self) -> None:
        self.p.pool.evict_one()

    @invariant()
    def accounts_are_exact(self) -> None:
        assert self.p.pool.table.n_used == self.p.backend.n_used == sum(self.p.pool.cells_by_state())

    @invariant()
    def chains_hold_what_they_say(self) -> None:
        for chain in self.p.pool:
            assert held(self.p.backend, chain.seq) == dict(enumerate(chain.tokens.view.tolist()))


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
