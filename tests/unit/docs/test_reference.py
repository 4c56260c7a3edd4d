"""Each row of docs/reference.md and docs/cases.md names a test, and each named test exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
DOCS = TESTS.parent / "docs"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
WAITS = re.compile(r"\bwaits? for\b")


def rows(page: str) -> list[str]:
    """The table rows, without heads and rules."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    heads = {i - 1 for i, line in enumerate(lines) if line.startswith("|--")}
    return [
        line for i, line in enumerate(lines) if line.startswith("|") and not line.startswith("|--") and i not in heads
    ]


@cache
def names_of(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    classes = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return frozenset({f.name for f in functions} | {t.id for t in classes if isinstance(t, ast.Name)})


def test_there_are_rows() -> None:
    assert len(rows("reference.md")) > 50
    assert len(rows("cases.md")) > 30


@pytest.mark.parametrize("row", [*rows("reference.md"), *rows("cases.md")])
def test_the_tests_of_a_row_exist(row: str) -> None:
    named = NAMED.findall(row)
    assert named or WAITS.search(row), "the row names no test, and nothing it waits for"
    for path, name in named:
        assert (TESTS / path).is_file(), path
        assert name in names_of(path), f"{path}::{name}"


@pytest.mark.parametrize("row", rows("reference.md"))
def test_nothing_of_the_reference_waits(row: str) -> None:
    assert NAMED.search(row)


def test_the_numbers_of_the_cases_are_unique_and_in_order() -> None:
    numbers = [row.split("|")[1].strip() for row in rows("cases.md")]
    assert all(re.fullmatch(r"[A-Z]\d+", number) for number in numbers)
    assert numbers == sorted(set(numbers), key=lambda number: (number[0], int(number[1:])))
