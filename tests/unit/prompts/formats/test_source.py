from __future__ import annotations

import pytest

from warmlane.prompts.formats.source import Mark, Marks


def test_marks_that_would_be_found_differently_as_text_comes_are_refused() -> None:
    Marks([Mark("\n</a>"), Mark("</a>")])
    for inner in ("<a", "a"):
        with pytest.raises(ValueError, match="inside"):
            Marks([Mark("<a>"), Mark(inner)])


def test_only_what_may_become_a_mark_is_held() -> None:
    marks = Marks([Mark("<tool>"), Mark("[X]")])
    assert [marks.held(text, 0) for text in ("a<", "a<to", "a<tx", "<tool", "", "[", "<[")] == [1, 3, 0, 5, 0, 1, 1]
