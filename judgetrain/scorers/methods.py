"""Every scorer by name, behind one function: what the stages, the judge and the rewards share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from judgetrain import rooms
from judgetrain.errors import ConfigError
from judgetrain.keys import did_you_mean
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, Unscored, with_illustration
from judgetrain.scorers.estimator import Batch, Estimator, Scores, Value
from judgetrain.scorers.glassbox import combine, reference_sentprob

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


def load_estimators() -> tuple[Estimator, ...]:
    """Return every room's estimators, the core's first.

    Raises:
        ConfigError: an estimator's group is not its name in ``room.yaml``, or two estimators have a score of one name.
    """
    estimators: list[Estimator] = []
    owners: dict[str, str] = {}
    for name, code in rooms.scorers().items():
        estimator: Estimator = resolve_name(code)()
        if estimator.group != name:
            raise ConfigError(f"The scorer {code} has the group {estimator.group!r}: its room.yaml must call it so.")
        for score_name in estimator.names:
            if score_name in owners:
                raise ConfigError(
                    f"The scorers {owners[score_name]} and {code} both have a score {score_name!r}: rename one."
                )
            owners[score_name] = code
        estimators.append(estimator)
    return tuple(estimators)


ESTIMATORS = load_estimators()
"""Every way to compute scores, the core's first."""
SINGLE_PASS = ESTIMATORS[0]
"""Scores of a response that follow from the response alone, by one reading of it: the first in the core's room.yaml."""
COMBINED = {"softmax_combo": ("softmax_ent", "softmax_var")}
"""Scores that are the normalised sum of others, over all items together (:func:`combine`); higher is better."""
BY_NAME: Mapping[str, Estimator] = {name: estimator for estimator in ESTIMATORS for name in estimator.names}
SCORERS = (*ESTIMATORS[0].names, *COMBINED, *(n for estimator in ESTIMATORS[1:] for n in estimator.names))
"""Every scorer by name."""
VARIANTS = ("illustration", "calibration")
"""What may follow a score's name after ``+``: how references are used (glass-box 3)."""
OF_RESPONSES = tuple(name for name in SCORERS if name in COMBINED or BY_NAME[name].of_responses)
"""Those that score a given response; decensem_* score the model on a prompt, by responses that it decodes itself."""


def check_scorers(names: Sequence[str], allowed: Sequence[str] = SCORERS, key: str = "scorer") -> None:
    """Refuse (ConfigError) a name, with or without :data:`VARIANTS`, that is no scorer, or none of ``allowed``."""
    for text in names:
        name, *variants = text.split("+")
        if not set(variants) <= set(VARIANTS) or len(set(variants)) < len(variants):
            raise ConfigError(f"{key}: {text!r}: after a score's name there may be +{', +'.join(VARIANTS)}")
        for part in COMBINED.get(name, (name,)) if variants and name in SCORERS else ():
            if not BY_NAME[part].references:
                raise ConfigError(f"{key}: {text!r}: references change nothing of {part}; leave out what follows +")
        if name in SCORERS and name not in allowed:
            raise ConfigError(f"{key}: {name} scores a model on a prompt, no given response: use it in stage=selfeval")
        if name not in allowed:
            near = did_you_mean(name, allowed)
            raise ConfigError(f"{key}: {name!r} is no scorer; allowed are {', '.join(allowed)}{near}")


def groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Scores that are computed together, by their estimator's group; combined ones are replaced by their parts.

    Variants are groups of their own, as ``single-calibration``.
    """
    result: dict[str, list[str]] = {}
    for part in (part for name in names for part in parts(name)):
        base, _, variant = part.partition("+")
        group = "-".join([BY_NAME[base].group, *filter(None, variant.split("+"))])
        members = result.setdefault(group, [])
        if part not in members:
            members.append(part)
    return result


def parts(name: str) -> list[str]:
    """The scores that one is made of: itself, unless it is combined of others."""
    base, plus, variant = name.partition("+")
    return [f"{part}{plus}{variant}" for part in COMBINED.get(base, (base,))]


def score(
    scorer: TokenScorer,
    samples: Sequence[Sample],
    names: Sequence[str] = ("sentprob", "softmax_ent", "softmax_var", "softmax_combo"),
    settings: ScorerConfig | None = None,
    seed: int = 0,
) -> dict[str, Scores]:
    """Scores of every sample by each scorer; those of one estimator are computed together.

    Args:
        scorer: the model whose probabilities are read.
        samples: responses with their prompts, and references where a variant asks for them.
        names: of :data:`SCORERS`, with :data:`VARIANTS`; ``softmax_combo`` normalises over the given samples.
            ``+illustration`` puts query and reference before the prompt as an example (glass-box paper, section 3.1).
            ``+calibration`` subtracts the model's uncertainty about the reference (section 3.2): SentProb-Ref, from the
            score turned so that lower is better.
        settings: how scores are computed.
        seed: of what is sampled.

    Raises:
        ConfigError: an unknown scorer, or a setting that does not fit.
        EngineError: attention weights are asked for and cannot be had.
    """
    check_scorers(names)
    settings, found = settings or ScorerConfig(), dict[str, Scores]()
    for named in groups(names).values():
        variants, members = named[0].split("+")[1:], [name.partition("+")[0] for name in named]
        estimator = BY_NAME[members[0]]
        shown, missing = list(samples), [False] * len(samples)
        if "illustration" in variants:
            shown = [with_illustration(s) if s.reference else s for s in samples]
            missing = [not s.reference for s in samples]
        done = estimator.compute(Batch(scorer, shown, settings, seed), members)
        for name, scores in done.items():
            values = [Unscored("no_reference") if gone else v for gone, v in zip(missing, scores.values, strict=True)]
            done[name] = replace(scores, values=values)
        done = _calibrated(done, scorer, samples) if "calibration" in variants else done
        found |= {name: replace(done[base], method=name) for name, base in zip(named, members, strict=True)}
    return {name: assemble(found, name) for name in names}


def assemble(found: Mapping[str, Scores], name: str) -> Scores:
    """A score by name from scores of all its parts over the same items.

    ``softmax_combo`` is the normalised sum of Softmax-Ent and Softmax-Var, turned so that higher is better.
    """
    if parts(name) == [name]:
        return found[name]
    each = [found[part] for part in parts(name)]
    total = combine(*(part.oriented for part in each))
    rows = zip(*(part.values for part in each), strict=True)
    reasons = [next((v for v in row if isinstance(v, Unscored)), None) for row in rows]
    return Scores(name, [reason or cast(float, value) for reason, value in zip(reasons, total, strict=True)], 1)


def better(name: str) -> int:
    """1 if more of a score is better, -1 if less is."""
    if parts(name) != [name]:
        return 1
    name, *variants = name.split("+")
    return -1 if "calibration" in variants else BY_NAME[name].names[name]


def _calibrated(found: Mapping[str, Scores], scorer: TokenScorer, samples: Sequence[Sample]) -> dict[str, Scores]:
    """Every score minus the model's uncertainty about the reference; these are better when lower."""
    references = scorer.statistics([Sample(s.prompt, s.reference or "") for s in samples])
    result = {}
    for name, scores in found.items():
        values: list[Value] = []
        for value, sample, reference in zip(scores.values, samples, references, strict=True):
            if isinstance(value, Unscored):
                values.append(value)
            elif isinstance(reference, Unscored):
                values.append(Unscored(f"reference_{reference.reason}" if sample.reference else "no_reference"))
            else:
                values.append(-scores.better * value - reference_sentprob(reference))
        result[name] = Scores(name, values, -1)
    return result
