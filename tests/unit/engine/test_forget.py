"""What a client deletes is found in every tier and leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.engine.harness import DOMAIN, Bench, bench, chat
from unit.engine.test_tiers import files, opener, prompt, spilling
from warmlane.engine.protocol import OwnerId

OTHER = b"other-domain-16b"


def rest(b: Bench) -> None:
    """Let everything idle be written to disk."""
    b.time.sleep(31.0)
    b.scheduler.cache.tick()


def everywhere(kind: str, directory: Path) -> Bench:
    """An engine that keeps idle chains hot, in memory, or on disk as well."""
    match kind:
        case "hot":
            return bench(hash_mode=True)
        case "ram":
            return spilling()
        case _:
            return spilling(directory)


@pytest.fixture(params=["hot", "ram", "disk"])
def b(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return everywhere(request.param, tmp_path)


def reused(b: Bench, text: str, domain: bytes = DOMAIN) -> int:
    return b.placed(b.ask(text, domain=domain, max_tokens=1)).cached_tokens


def test_a_domain_is_forgotten_and_the_others_are_not(b: Bench, tmp_path: Path) -> None:
    for owner, domain in ((101, DOMAIN), (102, OTHER)):
        b.ask(prompt("hi"), owner=owner, domain=domain, max_tokens=4)
        rest(b)
    b.scheduler.cache.forget(DOMAIN, (), at=0, keep=0)

    assert reused(b, prompt("hi")) == 0
    assert reused(b, prompt("hi"), OTHER) > 0
    b.check_accounts()


def test_what_a_running_turn_holds_stays(b: Bench) -> None:
    turn = b.submit(prompt("hi"), owner=1, max_tokens=8)
    b.step()
    b.scheduler.cache.forget(DOMAIN, (), at=0, keep=0)
    b.run()

    assert b.ended(turn).output_tokens == 8
    b.check_accounts()


def test_files_of_an_earlier_process_are_forgotten(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    assert files(tmp_path)
    after.scheduler.cache.forget(DOMAIN, (), at=0, keep=0)

    assert not files(tmp_path)
    assert reused(after, prompt("hi")) == 0


def converse(b: Bench) -> tuple[str, int, int]:
    """Two turns of a conversation whose session then goes: the second's prompt, and both turns."""
    first = prompt("one")
    one = b.ask(first, owner=1, max_tokens=6)
    second = first + b.text(one) + "<|im_end|>\n" + chat(("user", "two, which is secret"))
    two = b.ask(second, owner=1, max_tokens=6)
    b.scheduler.release(OwnerId(1, 1), purge=False)
    rest(b)
    return second, one, two


def test_a_turn_whose_session_has_gone_is_forgotten_and_what_it_continued_stays(b: Bench) -> None:
    second, one, two = converse(b)
    at, keep = b.placed(two).prompt_tokens, b.placed(one).prompt_tokens + 6
    b.scheduler.cache.forget(DOMAIN, b.ended(two).token_ids, at=at, keep=keep)

    # What a step computed is a slice, and a snapshot may reach further than the turn before: it goes as a whole.
    assert reused(b, second) <= keep
    b.check_accounts()


def test_turns_that_were_answered_alike_are_both_forgotten() -> None:
    b = bench(ram_bytes=1 << 20)
    turns = [b.ask(prompt(text), owner=i, max_tokens=6) for i, text in enumerate(("EMIT:OK one", "EMIT:OK two"))]
    for i, _ in enumerate(turns):
        b.scheduler.release(OwnerId(1, i), purge=False)
    reply, at = (b.ended(turns[0]).token_ids[:2], b.placed(turns[0]).prompt_tokens)
    b.scheduler.cache.forget(DOMAIN, reply, at=at, keep=0)

    assert b.backend.n_used == 0
    assert len(b.scheduler.cache.ram.index) == 0
    b.check_accounts()


def test_a_turn_is_found_after_a_restart(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    second, _, two = converse(b)
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    at = b.placed(two).prompt_tokens
    after.scheduler.cache.forget(DOMAIN, b.ended(two).token_ids, at=at, keep=0)

    assert not files(tmp_path)
    assert reused(after, second) == 0


def test_what_a_session_holds_is_left_to_it(b: Bench) -> None:
    turn = b.ask(prompt("one"), owner=1, max_tokens=6)
    rest(b)
    at = b.placed(turn).prompt_tokens
    b.scheduler.cache.forget(DOMAIN, b.ended(turn).token_ids, at=at, keep=0)

    assert reused(b, prompt("one")) == at - 1
    b.check_accounts()


@pytest.mark.parametrize("wrong", ["reply", "position", "domain"])
def test_another_turn_is_not_taken_for_it(b: Bench, wrong: str) -> None:
    turn = b.ask(prompt("one"), owner=1, max_tokens=6)
    b.scheduler.release(OwnerId(1, 1), purge=False)
    rest(b)
    ids, at = b.ended(turn).token_ids, b.placed(turn).prompt_tokens
    b.scheduler.cache.forget(
        OTHER if wrong == "domain" else DOMAIN,
        (ids[0] ^ 1, *ids[1:]) if wrong == "reply" else ids,
        at=at - 1 if wrong == "position" else at,
        keep=0,
    )

    assert reused(b, prompt("one")) == at - 1


def test_pins_of_a_domain_are_forgotten_and_the_others_are_not(b: Bench) -> None:
    cache = b.scheduler.cache
    for domain in (DOMAIN, OTHER):
        cache.pin(domain, b.tokens(prompt("hi")), 60.0)
    cache.forget(DOMAIN, (), at=0, keep=0)

    assert len(cache.pins) == 1
    assert cache.pins.until_s(OTHER, b.tokens(prompt("hi"))) > 0


def test_a_write_under_way_is_overtaken(tmp_path: Path) -> None:
    b = bench(hot_tokens=0, ram_bytes=1 << 20, disk=opener(tmp_path))
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.scheduler.cache.forget(DOMAIN, (), at=0, keep=0)
    rest(b)
    assert not files(tmp_path)
