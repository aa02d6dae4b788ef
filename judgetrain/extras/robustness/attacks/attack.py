"""Attack a comparison: a pure function. The attacks' texts are data (``wordings``, ``forgeries.yaml``).

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
from judgetrain.schema import Comparison

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
        """Return the comparison under attack, its id with the attack's name.

        None where nothing is to be done by it: an answer of one sentence has no other first sentence, and one with
        bullets is a list already.
        """
        dialogue = comparison.dialogue
        attacked_text = comparison.response_a
        if self.place == "query":
            attacked_text = dialogue.query
        text = WAYS[self.how](self, attacked_text)
        if text is None:
            return None
        if self.how == "swap":
            changed = comparison.swapped()
        elif self.place == "query":
            # The query is the last message; earlier turns stay as they are.
            *before, last = dialogue.messages
            messages = (*before, replace(last, content=text))
            changed = replace(comparison, dialogue=replace(dialogue, messages=messages))
        else:
            changed = replace(comparison, response_a=text)
        return replace(changed, id=f"{comparison.id}+{self.name}")


def worse_first(comparison: Comparison) -> Comparison:
    """Return the comparison in that order of its responses in which the worse one, by its label, is A.

    Raises:
        ValueError: its label is a tie, or it has none.
    """
    if comparison.label not in ("A", "B"):
        raise ValueError(f"{comparison.id}: neither response is the worse one: its label is {comparison.label}")
    if comparison.label == "A":
        return comparison.swapped()
    return comparison


def _marked(attack: Attack, text: str) -> str | None:
    """Return the text with a heading, and a bullet before every sentence; None where it has some already."""
    # With the heading: its line break makes a bullet of a dash at the text's beginning.
    if attack.bullet in f"{attack.text}{text}":
        return None
    from judgetrain.data.responses import sentences

    parts = [attack.text]
    end = 0
    for sentence in sentences(text):
        # What stands between two sentences stays.
        # Looked for behind the last one, as a text may say a sentence twice.
        start = text.index(sentence, end)
        parts += [text[end:start], attack.bullet, sentence]
        end = start + len(sentence)
    parts.append(text[end:])
    return "".join(parts)


def _first_sentence(attack: Attack, text: str) -> str | None:
    """Return the first of several sentences; None where there is one at most."""
    from judgetrain.data.responses import sentences

    parts = sentences(text)
    if len(parts) < 2:
        return None
    return parts[0]


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
"""Changes to a text, by name: ``before`` and ``after`` add the attack's text, ``repeat`` says it twice,
``markdown`` sets it as a list, ``swap`` exchanges the responses, ``same`` does nothing; ``instead`` and
``first_sentence`` replace the response."""


def wording_file(name: str, owner: object = None) -> str:
    """Return the file of a wording."""
    return str(Path(__file__).with_name("wordings") / f"{name}.yaml")


def load_attacks(wording: str = WORDINGS[0], chosen: Sequence[str] = KINDS) -> list[Attack]:
    """Return the attacks of a wording, and the forgeries, in the order of the files.

    Args:
        wording: one of :data:`WORDINGS`.
        chosen: kinds or names of attacks.

    Raises:
        ConfigError: a name that neither a kind nor an attack has.
    """
    attacks = _wording(wording)
    names = {*KINDS, *(attack.name for attack in attacks)}
    for name in chosen:
        if name not in names:
            others = ", ".join(attack.name for attack in attacks if attack.kind != "forgery")
            raise ConfigError(
                f"robustness.attacks: {name!r} is no attack; there are the kinds {', '.join(KINDS)}, and {others}"
            )
    return [attack for attack in attacks if attack.kind in chosen or attack.name in chosen]


@cache
def _wording(name: str) -> tuple[Attack, ...]:
    """Return all attacks of a wording, and the forgeries."""
    from judgetrain.yaml_text import load_yaml

    rows = load_yaml(Path(wording_file(name)).read_text(encoding="utf-8"))
    attacks = [Attack(**row) for row in rows]
    for row in load_yaml(FORGERIES.read_text(encoding="utf-8")):
        attacks.append(Attack(name=row["id"], kind="forgery", place=row["place"], text=row["text"]))
    return tuple(attacks)
