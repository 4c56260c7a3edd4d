"""Each row of docs/reference.md names a test, and each named test exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "reference.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    """The table rows, without heads and rules."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
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
    assert len(rows()) > 50


@pytest.mark.parametrize("row", rows())
def test_the_tests_of_a_row_exist(row: str) -> None:
    named = NAMED.findall(row)
    assert named, "the row names no test"
    for path, name in named:
        assert (TESTS / path).is_file(), path
        assert name in names_of(path), f"{path}::{name}"
