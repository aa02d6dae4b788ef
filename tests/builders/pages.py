"""A page as a browser's parser sees it: elements with their attributes and text, and what is not well formed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "hr", "input", "link"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    def text(self) -> str:
        """Return all text below."""
        return "".join(c if isinstance(c, str) else c.text() for c in self.children)

    def all(self, tag: str | None = None, kind: str | None = None) -> list[Element]:
        """Return every element below with a tag or a class, in order."""
        matches = []
        for child in self.children:
            if isinstance(child, Element):
                classes = (child.attributes.get("class") or "").split()
                if tag in (None, child.tag) and (kind is None or kind in classes):
                    matches.append(child)
                matches += child.all(tag, kind)
        return matches

    def by_id(self, identifier: str) -> Element:
        [element] = [e for e in self.all() if e.attributes.get("id") == identifier]
        return element


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(page: str, allowed: Collection[str] = ()) -> Element:
    """Return a page's elements; check that all are closed, ids differ, inner links lead somewhere, and nothing runs.

    Args:
        page: the text.
        allowed: tags that other pages must not have, as the ``script`` of a page that has one of its own.
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].tag}> is not closed"
    root = reader.root
    ids = set()
    for element in root.all():
        refused = {"script", "img", "link", "iframe", "object", "form", "svg", "base"}.difference(allowed)
        assert element.tag not in refused, element.tag
        for name, value in element.attributes.items():
            assert not name.startswith("on"), name
            assert name != "src"
            if name == "href":
                assert value and ":" not in value.split("/")[0] and not value.startswith("//"), value
        if "id" in element.attributes:
            assert element.attributes["id"] not in ids
            ids.add(element.attributes["id"])
    for link in root.all("a"):
        address = link.attributes["href"] or ""
        assert not address.startswith("#") or address[1:] in ids, address
    return root
