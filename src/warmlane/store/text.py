"""Text that any client may have sent, in any database."""

from __future__ import annotations

import re

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import Dialect

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class AnyText(sa.TypeDecorator[str]):
    """Text that may hold U+0000, which PostgreSQL cannot store: there it is written as `\\0`, and a backslash as two.

    Equal texts stay equal and others different, so that ids compare as they are.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        return value.replace("\\", "\\\\").replace("\0", "\\0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql" or "\\" not in value:
            return value
        return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], value)
