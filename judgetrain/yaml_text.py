"""Reads YAML that people and judges bring, in time and memory that its text bounds."""

from typing import Any

import yaml

DEEPEST = 200
"""The most levels of lists and mappings in one another. A compiled reader would end the process at some thousands."""
FEW = 100
"""Values that any text may have: a single character may be a list of nothing."""
_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast where PyYAML was built with its library."""
MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key ``<<``, whose mapping's keys give way to those that stand beside it."""


class _Loader(_FASTEST):  # type: ignore[misc]
    """Reads YAML, and refuses a mapping with a repeated key: PyYAML would keep the last value in silence.

    In braces a comma ends a value. What follows it in a text or a number, as in ``{text: kind, not cold}`` and
    ``{weight: 3,5}``, is a key without a value for YAML, and refused.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return the mapping of a node (yaml.YAMLError: a key stands twice, or in braces without a value)."""
        seen = set()
        for key_node, value_node in node.value:
            if node.flow_style and _is_nothing(value_node):
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(
                    f"line {line}: {key_node.value!r} stands in braces without a value: put a text with a comma into "
                    "quotes, and write a number with a point"
                )
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == MERGE:
                continue
            key = (key_node.tag, key_node.value)
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: the key {key_node.value!r} stands twice in a mapping")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _is_nothing(node: Any) -> bool:
    """Return whether a value is not written at all; ``null`` and an empty text in quotes are."""
    return isinstance(node, yaml.ScalarNode) and node.value == "" and not node.style


class ExpansionError(yaml.YAMLError):
    """Aliases that stand for more than their text could say."""


def load_yaml(text: str) -> Any:
    """Return the values of a YAML text.

    An alias stands for what its anchor holds, so that aliases of aliases make a short text a large value, and merged
    keys (``<<``) copy it. All aliases written out, a text may have no more values than it has characters.

    Raises:
        yaml.YAMLError: it is no YAML, a key of a mapping stands twice or in braces without a value, or aliases make
            more of it (:class:`ExpansionError`).
        RecursionError: it is nested deeper than :data:`DEEPEST` levels.
    """
    _check_size(text)
    return yaml.load(text, _Loader)


def _check_size(text: str) -> None:
    """Raise an error for a text that is nested too deeply, or whose aliases stand for too much."""
    total = 0
    anchored: dict[str, int] = {}
    # Of each list or mapping that is open: its anchor, and the number of values before it.
    open_nodes: list[tuple[str | None, int]] = []
    line = 0
    for event in yaml.parse(text, _FASTEST):
        if event.start_mark is not None:
            line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            # One that is not known yet is its own, or an error of which the reader tells more.
            total += anchored.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            _note(anchored, event.anchor, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            total += 1
            if len(open_nodes) > DEEPEST:
                raise RecursionError(f"nested deeper than {DEEPEST} levels (line {line})")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            _note(anchored, anchor, total - before)
        if total > len(text) + FEW:
            raise ExpansionError(
                f"line {line}: its aliases (*NAME) stand for more values than the text has characters; "
                "write out what is meant"
            )


def _note(anchored: dict[str, int], anchor: str | None, size: int) -> None:
    """Keep how many values an anchor stands for."""
    if anchor is not None:
        anchored[anchor] = size
