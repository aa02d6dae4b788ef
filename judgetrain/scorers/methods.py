"""Every scorer by name, behind one function: what the stages, the judge and the rewards share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from judgetrain.errors import ConfigError
from judgetrain.scorers import glassbox, probdiff
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Messages, Sample, Unscored, turns
from judgetrain.scorers.ensembles import EnsembleSettings
from judgetrain.scorers.features import FEATURES, Formula
from judgetrain.scorers.glassbox import ENSEMBLES, Scores, Value, combo
from judgetrain.scorers.probdiff import ProbDiffSettings
from judgetrain.scorers.prompts import ScorerPrompts, load_scorer_prompts

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

SCORERS = (*glassbox.METHODS, "probdiff")
"""Every scorer by name."""
OF_RESPONSES = tuple(name for name in SCORERS if not name.startswith("decensem"))
"""Those that score a given response; decensem_* score the model on a prompt, by responses that it decodes itself."""
PARTS = {"softmax_combo": ("softmax_ent", "softmax_var")}
"""Scores that are computed from others, over all items together."""


@dataclass(frozen=True)
class ScorerSettings:
    """How scores are computed; see :func:`judgetrain.scorers.glassbox.score` and ProbDiffSettings."""

    formula: Formula = "paper"
    illustration: bool = False
    calibration: bool = False
    ensembles: EnsembleSettings = field(default_factory=EnsembleSettings)
    probdiff: ProbDiffSettings = field(default_factory=ProbDiffSettings)
    prompts: ScorerPrompts = field(default_factory=load_scorer_prompts)

    @classmethod
    def of(cls, config: ScorerConfig, references: bool = True) -> ScorerSettings:
        """The settings that a configuration names; those of references count where items can have some."""
        limit = config.max_new_tokens
        return cls(
            "released" if config.formula == "released" else "paper",
            references and config.illustration,
            references and config.calibration,
            EnsembleSettings(config.passes, config.top_k, config.ensemble_temperature, limit, limit),
            ProbDiffSettings(
                config.revisions,
                config.chains,
                config.revision_prompt,
                config.revision_temperature,
                max_new_tokens=limit,
            ),
            load_scorer_prompts(config.prompts),
        )


def check_scorers(names: Sequence[str], allowed: Sequence[str] = SCORERS, key: str = "scorer") -> None:
    """Refuse a name that is no scorer, or none of ``allowed``.

    Raises:
        ConfigError: names the key, the name and what is allowed.
    """
    for name in names:
        if name in SCORERS and name not in allowed:
            raise ConfigError(
                f"{key}: {name} scores a model on a prompt, not a given response: use it in stage=selfeval"
            )
        if name not in allowed:
            raise ConfigError(f"{key}: {name!r} is no scorer; allowed are {', '.join(allowed)}")


def groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Scores that are computed together, by group: in one pass, or by one way of generating.

    The single pass runs with eager attention if one of its scores reads attention. Scores that are computed from others
    are replaced by those.
    """
    result: dict[str, list[str]] = {}
    for name in (part for n in names for part in PARTS.get(n, (n,))):
        group = name.removesuffix("_exp").removesuffix("_var") if name in ENSEMBLES else name
        if name in FEATURES["paper"]:
            group = "single_pass"
        members = result.setdefault(group, [])
        if name not in members:
            members.append(name)
    return result


def score(
    scorer: TokenScorer,
    samples: Sequence[Sample],
    names: Sequence[str],
    settings: ScorerSettings | None = None,
    seed: int = 0,
) -> dict[str, Scores]:
    """Scores of every sample by each scorer, glass-box or ProbDiff; arguments as theirs.

    Raises:
        ConfigError: an unknown scorer.
    """
    check_scorers(names)
    settings = settings or ScorerSettings()
    found: dict[str, Scores] = {}
    for members in groups(names).values():
        if members == ["probdiff"]:
            done = probdiff.score(scorer, samples, settings.probdiff, prompts=settings.prompts, seed=seed)
            found["probdiff"] = Scores("probdiff", [r if isinstance(r, Unscored) else r.d for r in done], 1)
        else:
            found |= glassbox.score(
                scorer,
                samples,
                members,
                formula=settings.formula,
                illustration=settings.illustration,
                calibration=settings.calibration,
                ensembles=settings.ensembles,
                prompts=settings.prompts,
                seed=seed,
            )
    return {name: assemble(found, name) for name in names}


def score_conversations(
    scorer: TokenScorer,
    conversations: Sequence[Messages],
    names: Sequence[str],
    settings: ScorerSettings | None = None,
    seed: int = 0,
) -> dict[str, Scores]:
    """Multi-turn scores: each conversation's mean over its assistant turns, each given all turns before it.

    A turn without a score counts in no mean; a conversation without any has the reason of its last turn.

    Raises:
        ConfigError: an unknown scorer.
    """
    parts = [turns(conversation) for conversation in conversations]
    flat = score(scorer, [sample for part in parts for sample in part], names, settings, seed)
    result = {}
    for name, scores in flat.items():
        rest = iter(scores.values)
        values: list[Value] = []
        for part in parts:
            own = list(islice(rest, len(part)))
            found = [v for v in own if not isinstance(v, Unscored)]
            values.append(sum(found) / len(found) if found else own[-1] if own else Unscored("empty_response"))
        result[name] = Scores(name, values, scores.better)
    return result


def assemble(found: Mapping[str, Scores], name: str) -> Scores:
    """A score by name from scores of all its parts over the same items."""
    return combo(*(found[part] for part in PARTS[name])) if name in PARTS else found[name]


def better(name: str, settings: ScorerSettings) -> int:
    """1 if more of a score is better, -1 if less is, as the settings compute it."""
    if settings.calibration and name not in ("softmax_combo", "self_generation", "probdiff"):
        return -1
    return 1 if name == "probdiff" else glassbox.direction(name, settings.formula)
