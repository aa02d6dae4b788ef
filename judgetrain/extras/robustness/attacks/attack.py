"""What an attack does to a comparison: a pure function. What attacks say is data (``wordings``, ``forgeries.yaml``).

Every attack is on response A: :func:`worse_first` puts the response there that is to gain by it. The kinds:

- ``edit``: A is shown otherwise or says more, and is no better for it, so that the label stays. Sources: CALM (Ye et
  al. 2024, arXiv:2410.02736), RobustJudge (Li et al. 2025, arXiv:2506.09443), OffsetBias (Park et al. 2024,
  arXiv:2407.06551).
- ``forgery``: text in A, or in the query, that passes for the judge's own output or for a part of its prompt.
- ``empty``: an answer without content stands in A's place and must lose ("one token to fool", Zhao et al. 2025,
  arXiv:2507.08794).
- ``control``: a harmless sentence: what any added text does.
- ``rerun``: nothing, asked once more: what a judge changes of itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from judgetrain.errors import ConfigError
from judgetrain.schema import Comparison, mirror

KINDS = ("rerun", "control", "edit", "empty", "forgery")
WORDINGS = ("english", "world")
FORGERIES = Path(__file__).with_name("forgeries.yaml")
"""Texts that try to pass for a judge's own output or for a part of its prompt; part of every wording."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An attack as its data has it.

    Args:
        name: unique among attacks.
        kind: one of :data:`KINDS`.
        how: one of :data:`WAYS`.
        text: what is added, or what stands in the response's place.
        place: where: ``response`` (A) or ``query``.
        join: stands between the text and what was there.
        bullet: markdown: stands before every sentence.
    """

    name: str
    how: str = "after"
    text: str = ""
    kind: str
    place: str = "response"
    join: str = "\n"
    bullet: str = "\n- "

    def into(self, comparison: Comparison) -> Comparison | None:
        """The comparison under attack, its id telling the attack's name too; None where nothing is to be done by it:
        an answer of one sentence has no other first sentence, and one with bullets is a list already."""
        changed, asked = comparison, comparison.dialogue
        text = WAYS[self.how](self, asked.query if self.place == "query" else comparison.response_a)
        if text is None:
            return None
        if self.how == "swap":
            changed = comparison.swapped()
        elif self.place == "query":
            *before, last = asked.messages
            changed = replace(changed, dialogue=replace(asked, messages=(*before, replace(last, content=text))))
        else:
            changed = replace(changed, response_a=text)
        return replace(changed, id=f"{comparison.id}+{self.name}")


def worse_first(comparison: Comparison) -> Comparison:
    """The comparison in that order of its responses in which the worse one, by its label, is A (ValueError: its label
    is a tie, or it has none)."""
    if comparison.label not in ("A", "B"):
        raise ValueError(f"{comparison.id}: neither response is the worse one: its label is {comparison.label}")
    return comparison if mirror(comparison.label) == "A" else comparison.swapped()


def _marked(attack: Attack, text: str) -> str | None:
    """The text with a heading, and a bullet before every sentence; nothing else is touched."""
    if attack.bullet in f"{attack.text}{text}":
        return None
    from judgetrain.data.responses import sentences

    parts, upto = [], 0
    for sentence in sentences(text):
        at = text.index(sentence, upto)
        parts += [text[upto:at], attack.bullet, sentence]
        upto = at + len(sentence)
    return "".join([attack.text, *parts, text[upto:]])


def _first_sentence(attack: Attack, text: str) -> str | None:
    from judgetrain.data.responses import sentences

    first, *others = sentences(text) or [""]
    return first if others else None


WAYS: dict[str, Callable[[Attack, str], str | None]] = {
    "before": lambda a, t: f"{a.text}{a.join}{t}",
    "after": lambda a, t: f"{t}{a.join}{a.text}",
    "repeat": lambda a, t: f"{t}{a.join}{t}",
    "markdown": _marked,
    "swap": lambda a, t: t,
    "same": lambda a, t: t,
    "instead": lambda a, t: a.text,
    "first_sentence": _first_sentence,
}
"""What may be done to a text by name: ``before`` and ``after`` add the attack's text, ``repeat`` says it twice,
``markdown`` sets it as a list, ``swap`` exchanges the responses, ``same`` does nothing; ``instead`` and
``first_sentence`` replace the response."""


def wording_file(name: str, owner: object = None) -> str:
    """The file of a wording."""
    return str(Path(__file__).with_name("wordings") / f"{name}.yaml")


def load_attacks(wording: str = WORDINGS[0], chosen: Sequence[str] = KINDS) -> list[Attack]:
    """The attacks of a wording, and the forgeries, that are named by kind or by name, in the order of the file
    (ConfigError: a name that neither a kind nor an attack has)."""
    found = _wording(wording)
    known = {*KINDS, *(attack.name for attack in found)}
    if unknown := [name for name in chosen if name not in known]:
        kinds, names = ", ".join(KINDS), ", ".join(a.name for a in found if a.kind != "forgery")
        raise ConfigError(f"robustness.attacks: {unknown[0]!r} is no attack; there are the kinds {kinds}, and {names}")
    return [attack for attack in found if {attack.kind, attack.name} & set(chosen)]


@cache
def _wording(name: str) -> tuple[Attack, ...]:
    import yaml

    said, forged = (yaml.safe_load(Path(f).read_text(encoding="utf-8")) for f in (wording_file(name), FORGERIES))
    forgeries = (Attack(name=r["id"], kind="forgery", place=r["place"], text=r["text"]) for r in forged)
    return *(Attack(**row) for row in said), *forgeries
