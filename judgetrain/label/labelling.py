"""Labelling functions: what can be seen in a plain text, each a weak signal of quality from 0 to 1."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

_WORD = re.compile(r"\w+")
_STOP = frozenset(
    "the and for that with this you your are was were have has had not but from what which how why who can could would "
    "should will they them their there about into than then when where is it in on of to a an do does did be or as at "
    "by me my i we us please write give tell make".split()
)


def tight(text: str) -> str:
    """The text without blank lines and without blanks around lines.

    No labelling function looks at these, but their patterns take quadratic time on long runs of them, such as a weak
    model's response of nothing but line breaks.
    """
    return "\n".join(line for line in map(str.strip, text.split("\n")) if line)


def words(text: str) -> list[str]:
    """The words of a text, case-folded."""
    return _WORD.findall(text.casefold())


def _terms(text: str) -> set[str]:
    return {w for w in words(text) if len(w) > 2 and w not in _STOP}


def relevance(query: str, response: str) -> float:
    """Share of the query's content words that the response takes up."""
    terms = _terms(query)
    return len(terms & _terms(response)) / len(terms) if terms else 0.5


def completeness(query: str, response: str) -> float:
    """Grows with the number of different words, saturating near 120."""
    return 1.0 - math.exp(-len(set(words(response))) / 40.0)


def conciseness(query: str, response: str) -> float:
    """1 up to 150 words, falling towards 0 beyond; nothing said is not concise."""
    count = len(words(response))
    return 0.0 if count == 0 else min(1.0, 150.0 / count)


def structure(query: str, response: str) -> float:
    """Lists, headings and paragraphs."""
    lines = [line for line in response.splitlines() if line.strip()]
    marked = sum(bool(re.match(r"\s*([-*\u2022#]|\d+[.)])\s*\S", line)) for line in lines)
    return min(1.0, 0.25 * marked + 0.1 * len(lines))


def specificity(query: str, response: str) -> float:
    """Numbers, names and examples per word."""
    found = len(re.findall(r"\d+|(?<=[a-z,] )[A-Z]\w+|for example|such as|e\.g\.", response))
    return min(1.0, 12.0 * found / max(20, len(words(response))))


def freshness(query: str, response: str) -> float:
    """No repetition: share of different word triples, 0 for an empty response."""
    tokens = words(response)
    triples = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    return len(set(triples)) / len(triples) if triples else float(bool(tokens)) * 0.5


def directness(query: str, response: str) -> float:
    """The first sentence takes up the query and does not apologise or refuse."""
    first = re.split(r"(?<=[.!?])\s", response.strip(), maxsplit=1)[0]
    refusal = re.search(r"\b(sorry|cannot|can't|as an ai|unable)\b", first.casefold())
    return 0.0 if not first or refusal else 0.4 + 0.6 * relevance(query, first)


def requested_form(query: str, response: str) -> float:
    """Code, a list or a short answer where the query asks for one."""
    asked = query.casefold()
    if re.search(r"\b(code|function|python|javascript|sql|program|script)\b", asked):
        return 1.0 if re.search(r"```|[;{}]\s*$|^\s*(def|import|select|function)\b", response, re.I | re.M) else 0.2
    if re.search(r"\b(list|steps|ideas|examples|ways|tips)\b", asked):
        return 1.0 if len(re.findall(r"^\s*([-*\u2022]|\d+[.)])", response, re.M)) > 1 else 0.3
    if re.search(r"\b(summar|tl;?dr|short|brief|one sentence)", asked):
        return conciseness(query, response * 3)
    return 0.6 if response.strip() else 0.0


def fluency(query: str, response: str) -> float:
    """Whole sentences: begins with a capital or a mark, ends with one, has no stutter."""
    text = response.strip()
    if not text:
        return 0.0
    stutter = bool(re.search(r"\b(\w+)( \1\b){2,}", text.casefold()))
    return 0.4 * (not text[0].islower()) + 0.4 * (text[-1] in ".!?)`\"'\u3002") + 0.2 * (not stutter)


def language_match(query: str, response: str) -> float:
    """The response is in the query's script."""

    def latin(text: str) -> float:
        letters = [c for c in text[:4000] if c.isalpha()]
        return sum(c < "\u0250" for c in letters) / len(letters) if letters else 0.5

    return 1.0 - abs(latin(query) - latin(response))


def reasoning(query: str, response: str) -> float:
    """Words that connect a claim with a reason."""
    found = re.findall(
        r"\b(because|since|therefore|so that|thus|due to|which means|however|although)\b", response.casefold()
    )
    return min(1.0, 0.3 * len(found))


@dataclass(frozen=True)
class Function:
    """A labelling function, and what it looks for in words."""

    name: str
    looks_for: str
    check: Callable[[str, str], float]


FUNCTIONS = (
    Function("Relevance", "takes up what the query asks about", relevance),
    Function("Completeness", "covers the question in enough depth", completeness),
    Function("Requested form", "gives the kind of text asked for", requested_form),
    Function("Directness", "answers at once, without refusing", directness),
    Function("Specificity", "gives numbers, names and examples", specificity),
    Function("Fluency", "consists of whole, clean sentences", fluency),
    Function("Freshness", "does not repeat itself", freshness),
    Function("Structure", "is easy to follow and well laid out", structure),
    Function("Reasoning", "gives reasons for what it says", reasoning),
    Function("Conciseness", "says it without padding", conciseness),
    Function("Language", "uses the language of the query", language_match),
)
