"""What a client deletes is found in every tier and leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.engine.harness import DOMAIN, Bench, bench, chat
from unit.engine.test_tiers import files, opener, prompt, spilling
from warmlane.engine.protocol import OwnerId
from warmlane.engine.vectors import digest

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


def forget(b: Bench, text: str, *, keep: int = 0) -> None:
    """The turn that was asked this."""
    asked = b.tokens(text)[:-1]
    b.scheduler.cache.forget(DOMAIN, digest(asked), at=asked.size, keep=keep)


def test_a_domain_is_forgotten_and_the_others_are_not(b: Bench, tmp_path: Path) -> None:
    for owner, domain in ((101, DOMAIN), (102, OTHER)):
        b.ask(prompt("hi"), owner=owner, domain=domain, max_tokens=4)
        rest(b)
    b.scheduler.cache.forget(DOMAIN, b"", at=0, keep=0)

    assert reused(b, prompt("hi")) == 0
    assert reused(b, prompt("hi"), OTHER) > 0
    b.check_accounts()


def test_what_a_running_turn_holds_stays(b: Bench) -> None:
    turn = b.submit(prompt("hi"), owner=1, max_tokens=8)
    b.step()
    b.scheduler.cache.forget(DOMAIN, b"", at=0, keep=0)
    b.run()

    assert b.ended(turn).output_tokens == 8
    b.check_accounts()


def test_files_of_an_earlier_process_are_forgotten(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    assert files(tmp_path)
    after.scheduler.cache.forget(DOMAIN, b"", at=0, keep=0)

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
    second, one, _ = converse(b)
    keep = b.placed(one).prompt_tokens + 6
    forget(b, second, keep=keep)

    # What a step computed is a slice, and a snapshot may reach further than the turn before: it goes as a whole.
    assert reused(b, second) <= keep
    b.check_accounts()


def test_who_asked_the_same_is_forgotten_as_well_and_who_was_answered_alike_is_not() -> None:
    b = bench(ram_bytes=1 << 20)
    for owner, text in enumerate(("EMIT:OK one", "EMIT:OK one", "EMIT:OK two")):
        b.ask(prompt(text), owner=owner, max_tokens=6)
    for owner in range(3):
        b.scheduler.release(OwnerId(1, owner), purge=False)
    same = b.tokens(prompt("EMIT:OK one")).size - len("one<|")
    forget(b, prompt("EMIT:OK one"), keep=same)

    assert reused(b, prompt("EMIT:OK two")) == b.tokens(prompt("EMIT:OK two")).size - 1
    assert reused(b, prompt("EMIT:OK one")) == same
    b.check_accounts()


@pytest.mark.parametrize(
    ("said", "limit"), [("yes", 1), ("", 6), ("東", 1)], ids=["one token", "none", "part of a character"]
)
def test_what_was_answered_with_next_to_nothing_is_forgotten(b: Bench, said: str, limit: int) -> None:
    b.ask(prompt(f"EMIT:{said}"), owner=1, max_tokens=limit)
    b.scheduler.release(OwnerId(1, 1), purge=False)
    rest(b)
    assert reused(b, prompt(f"EMIT:{said}")) > 0
    b.scheduler.release(OwnerId(1, b.n_turns - 1), purge=True)
    forget(b, prompt(f"EMIT:{said}"))

    assert reused(b, prompt(f"EMIT:{said}")) == 0
    b.check_accounts()


def test_a_turn_cancelled_in_its_prompt_is_found_by_its_beginning(b: Bench) -> None:
    text = prompt("secret " * 60)
    turn = b.submit(text, owner=1, max_tokens=4)
    b.step()
    b.scheduler.cancel(turn)
    b.scheduler.release(OwnerId(1, 1), purge=False)
    rest(b)
    asked = b.tokens(text)
    assert 1 < b.scheduler.cache.reusable(DOMAIN, asked) < asked.size - 1
    b.scheduler.cache.forget(DOMAIN, digest(asked[:1]), at=1, keep=0)

    assert reused(b, text) == 0
    b.check_accounts()


def test_a_turn_is_found_after_a_restart(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    second, _, _ = converse(b)
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    forget(after, second)

    assert not files(tmp_path)
    assert reused(after, second) == 0


def test_what_a_session_holds_is_left_to_it(b: Bench) -> None:
    turn = b.ask(prompt("one"), owner=1, max_tokens=6)
    rest(b)
    forget(b, prompt("one"))

    assert reused(b, prompt("one")) == b.placed(turn).prompt_tokens - 1
    b.check_accounts()


@pytest.mark.parametrize("wrong", ["prompt", "length", "domain"])
def test_another_turn_is_not_taken_for_it(b: Bench, wrong: str) -> None:
    turn = b.ask(prompt("one"), owner=1, max_tokens=6)
    b.scheduler.release(OwnerId(1, 1), purge=False)
    rest(b)
    asked = b.tokens(prompt("two" if wrong == "prompt" else "one"))[:-1]
    at = asked.size - (wrong == "length")
    b.scheduler.cache.forget(OTHER if wrong == "domain" else DOMAIN, digest(asked), at=at, keep=0)

    assert reused(b, prompt("one")) == b.placed(turn).prompt_tokens - 1


def test_pins_of_a_domain_are_forgotten_and_the_others_are_not(b: Bench) -> None:
    cache = b.scheduler.cache
    for domain in (DOMAIN, OTHER):
        cache.pin(domain, b.tokens(prompt("hi")), 60.0)
    cache.forget(DOMAIN, b"", at=0, keep=0)

    assert len(cache.pins) == 1
    assert cache.pins.until_s(OTHER, b.tokens(prompt("hi"))) > 0


def test_a_write_under_way_is_overtaken(tmp_path: Path) -> None:
    b = bench(hot_tokens=0, ram_bytes=1 << 20, disk=opener(tmp_path))
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.scheduler.cache.forget(DOMAIN, b"", at=0, keep=0)
    rest(b)
    assert not files(tmp_path)


def test_a_file_that_cannot_be_removed_is_told_of_and_tried_again(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    for owner, domain in ((101, DOMAIN), (102, OTHER)):
        b.ask(prompt("hi"), owner=owner, domain=domain, max_tokens=1)
    rest(b)
    cache = b.scheduler.cache
    in_the_way = [tmp_path / name for name in files(tmp_path)]
    for path in in_the_way:
        path.unlink()
        path.mkdir()
        (path / "something").touch()

    assert not cache.forget(DOMAIN, b"", at=0, keep=0)
    assert reused(b, prompt("hi")) == 0
    assert not cache.forget(DOMAIN, b"", at=0, keep=0)
    for path in in_the_way:
        (path / "something").unlink()
        path.rmdir()
    assert cache.forget(DOMAIN, b"", at=0, keep=0)
