"""What the `$ref`s of a JSON Schema name inside that schema."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from warmlane.prompts.schema_json import JsonValue, below

_MAX_SEARCHED = 50_000


@dataclass(frozen=True, slots=True)
class Target:
    """The JSON value at `pointer`."""

    pointer: str
    node: JsonValue


class References:
    """Resolves references within one schema; nothing is ever fetched."""

    def __init__(self, root: dict[str, JsonValue]) -> None:
        self._root = root
        identity = root.get("$id", root.get("id"))
        self._base = identity.rstrip("#") if isinstance(identity, str) else ""
        self._anchors: dict[str, Target] | None = None

    def resolve(self, ref: str) -> Target | None:
        """Where `ref` leads in the end: references that are nothing but another are followed. None if that is nowhere
        in this schema, or round in a circle."""
        seen: set[str] = set()
        while True:
            target = self._find(ref)
            if target is None or target.pointer in seen:
                return None
            seen.add(target.pointer)
            onward = _only_ref(target.node)
            if onward is None:
                return target
            ref = onward

    def _find(self, ref: str) -> Target | None:
        base, _, fragment = ref.partition("#")
        if base and base != self._base:
            return self._named().get(base) if not fragment else None
        fragment = unquote(fragment)
        if not fragment:
            return Target("", self._root)
        if not fragment.startswith("/"):
            return self._named().get("#" + fragment)
        return self._walk(fragment)

    def _walk(self, pointer: str) -> Target | None:
        node: JsonValue = self._root
        for step in pointer[1:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return Target(pointer, node)

    def _named(self) -> dict[str, Target]:
        """Subschemas that have a name of their own, by `$anchor` or an `$id` (`id` in draft 4)."""
        if self._anchors is None:
            self._anchors = {}
            waiting: list[Target] = [Target("", self._root)]
            for _ in range(_MAX_SEARCHED):
                if not waiting:
                    break
                here = waiting.pop()
                if isinstance(here.node, dict):
                    self._name(here, here.node)
                    waiting += (Target(below(here.pointer, k), v) for k, v in here.node.items())
                elif isinstance(here.node, list):
                    waiting += (Target(below(here.pointer, i), v) for i, v in enumerate(here.node))
        return self._anchors

    def _name(self, here: Target, node: dict[str, JsonValue]) -> None:
        assert self._anchors is not None
        for key, prefix in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
            name = node.get(key)
            if isinstance(name, str):
                self._anchors.setdefault(prefix + name, here)


def _only_ref(node: JsonValue) -> str | None:
    """The reference that this schema is, if it is nothing else but annotated."""
    if not isinstance(node, dict):
        return None
    ref = node.get("$ref")
    others = node.keys() - {"$ref", "title", "description", "default", "$comment", "$defs", "definitions"}
    return ref if isinstance(ref, str) and not others else None
