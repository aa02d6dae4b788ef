"""All scorers by name, behind one function that the stages, the judge and the rewards share."""

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
            # A room's score must not take the place of another's in silence.
            if score_name in owners:
                raise ConfigError(
                    f"The scorers {owners[score_name]} and {code} both have a score {score_name!r}: rename one."
                )
            owners[score_name] = code
        estimators.append(estimator)
    return tuple(estimators)


ESTIMATORS = load_estimators()
"""Every estimator, the core's first."""
SINGLE_PASS = ESTIMATORS[0]
"""The estimator of scores that one reading of a response gives: the first in the core's room.yaml."""
COMBINED = {"softmax_combo": ("softmax_ent", "softmax_var")}
"""Scores that are the normalised sum of others, over all items together (:func:`combine`); higher is better."""
BY_NAME: Mapping[str, Estimator] = {name: estimator for estimator in ESTIMATORS for name in estimator.names}
"""The estimator of each score that is not combined."""
SCORERS = tuple(dict.fromkeys([*SINGLE_PASS.names, *COMBINED, *BY_NAME]))
"""The names of all scorers, in the order of tables."""
VARIANTS = ("illustration", "calibration")
"""The uses of a reference that may follow a score's name after ``+`` (glass-box paper, section 3)."""
OF_RESPONSES = tuple(name for name in SCORERS if name in COMBINED or BY_NAME[name].of_responses)
"""The scorers of a given response. The others score the model on a prompt, by responses that it decodes itself."""


def check_scorers(names: Sequence[str], allowed: Sequence[str] = SCORERS, key: str = "scorer") -> None:
    """Refuse names that are no scorers.

    Args:
        names: with or without :data:`VARIANTS`.
        allowed: the scorers that are allowed here.
        key: the configuration key of the names, for messages.

    Raises:
        ConfigError: a name is no scorer, none of ``allowed``, or has a variant that it cannot have.
    """
    for text in names:
        name, *variants = text.split("+")
        has_unknown = not set(variants) <= set(VARIANTS)
        has_repeated = len(set(variants)) < len(variants)
        if has_unknown or has_repeated:
            raise ConfigError(f"{key}: {text!r}: after a score's name there may be +{', +'.join(VARIANTS)}")
        if variants and name in SCORERS:
            _check_reads_references(name, text, key)
        if name in allowed:
            continue
        # It exists, so a list of the allowed ones would not say why it is refused.
        if name in SCORERS:
            raise ConfigError(f"{key}: {name} scores a model on a prompt, no given response: use it in stage=selfeval")
        near = did_you_mean(name, allowed)
        raise ConfigError(f"{key}: {name!r} is no scorer; allowed are {', '.join(allowed)}{near}")


def _check_reads_references(name: str, text: str, key: str) -> None:
    """Refuse (ConfigError) a variant of a score that references do not change; ``text`` is name and variant."""
    for part in parts(name):
        if not BY_NAME[part].references:
            raise ConfigError(f"{key}: {text!r}: references change nothing of {part}; leave out what follows +")


def groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the scores that are computed together, by their estimator's group.

    Combined scores are replaced by their parts. Variants are groups of their own, as ``single-calibration``.
    """
    members_of: dict[str, list[str]] = {}
    for name in names:
        for part in parts(name):
            base, *variants = part.split("+")
            group = "-".join([BY_NAME[base].group, *variants])
            members = members_of.setdefault(group, [])
            # Softmax-combo and one of its parts may both be named.
            if part not in members:
                members.append(part)
    return members_of


def parts(name: str) -> list[str]:
    """Return the scores that a combined score is made of, with its variant; of any other, itself."""
    base, plus, variant = name.partition("+")
    return [f"{part}{plus}{variant}" for part in COMBINED.get(base, (base,))]


def score(
    scorer: TokenScorer,
    samples: Sequence[Sample],
    names: Sequence[str] = ("sentprob", "softmax_ent", "softmax_var", "softmax_combo"),
    settings: ScorerConfig | None = None,
    seed: int = 0,
) -> dict[str, Scores]:
    """Return the scores of every sample by each scorer; those of one estimator are computed together.

    Args:
        scorer: the model whose probabilities are read.
        samples: responses with their prompts, and references where a variant reads them.
        names: of :data:`SCORERS`, with :data:`VARIANTS`; ``softmax_combo`` normalises over the given samples.
            ``+illustration`` puts query and reference before the prompt as an example (glass-box paper, section 3.1).
            ``+calibration`` subtracts the model's uncertainty about the reference (section 3.2): SentProb-Ref, from the
            score turned so that lower is better.
        settings: how scores are computed.
        seed: the seed of whatever is sampled.

    Raises:
        ConfigError: an unknown scorer, or a setting that does not fit.
        EngineError: a score reads attention weights, and the model gives none.
    """
    check_scorers(names)
    batch = Batch(scorer, samples, settings or ScorerConfig(), seed)
    scores: dict[str, Scores] = {}
    for members in groups(names).values():
        scores |= _of_group(batch, members)
    return {name: assemble(scores, name) for name in names}


def _of_group(batch: Batch, members: Sequence[str]) -> dict[str, Scores]:
    """Return the scores of one group (:func:`groups`), by their names with the variants that they share."""
    variants = members[0].split("+")[1:]
    bases = [member.partition("+")[0] for member in members]
    samples = batch.samples
    if "illustration" in variants:
        illustrated = []
        for sample in samples:
            # A sample without a reference is scored as it is, and its score left out below: places stay the same.
            if sample.reference:
                sample = with_illustration(sample)
            illustrated.append(sample)
        batch = replace(batch, samples=illustrated)
    scores = BY_NAME[bases[0]].compute(batch, bases)
    if "illustration" in variants:
        scores = {name: _with_references(scores[name], samples) for name in scores}
    if "calibration" in variants:
        scores = _calibrated(scores, batch.scorer, samples)
    return {member: replace(scores[base], method=member) for member, base in zip(members, bases, strict=True)}


def _with_references(scores: Scores, samples: Sequence[Sample]) -> Scores:
    """Return scores without those of samples that have no reference."""
    values: list[Value] = []
    for value, sample in zip(scores.values, samples, strict=True):
        if sample.reference:
            values.append(value)
        else:
            values.append(Unscored("no_reference"))
    return replace(scores, values=values)


def assemble(scores: Mapping[str, Scores], name: str) -> Scores:
    """Return a score by its name, from the scores of all its parts over the same items.

    ``softmax_combo`` is the normalised sum of Softmax-Ent and Softmax-Var, turned so that higher is better.
    """
    names_of_parts = parts(name)
    if names_of_parts == [name]:
        return scores[name]
    columns = [scores[part] for part in names_of_parts]
    sums = combine(*(column.oriented for column in columns))
    values: list[Value] = []
    for place, total in enumerate(sums):
        reasons = [column.values[place] for column in columns if isinstance(column.values[place], Unscored)]
        # One reason is enough for a row, that of the first part.
        if reasons:
            values.append(reasons[0])
        else:
            # Every part has a number, and so has the sum.
            values.append(cast(float, total))
    return Scores(name, values, 1)


def better(name: str) -> int:
    """Return 1 if more of a score is better, -1 if less is."""
    # Combined scores were turned when they were added (:func:`assemble`).
    if parts(name) != [name]:
        return 1
    base, *variants = name.split("+")
    # What a calibrated score counts is uncertainty (:func:`_calibrated`), whatever the score was before.
    if "calibration" in variants:
        return -1
    return BY_NAME[base].names[base]


def _calibrated(scores: Mapping[str, Scores], scorer: TokenScorer, samples: Sequence[Sample]) -> dict[str, Scores]:
    """Return every score minus the model's uncertainty about the reference; less of it is better."""
    # In one call over all samples: an empty text has no score, and its place is kept.
    references = scorer.statistics([Sample(sample.prompt, sample.reference or "") for sample in samples])
    calibrated = {}
    for name, of_samples in scores.items():
        values: list[Value] = []
        for value, sample, reference in zip(of_samples.values, samples, references, strict=True):
            if isinstance(value, Unscored):
                values.append(value)
            elif not isinstance(reference, Unscored):
                # Uncertainty is better when lower, so the score is turned first.
                values.append(-of_samples.better * value - reference_sentprob(reference))
            # Told apart from a reference that is not there, which is no fault of the model.
            elif sample.reference:
                values.append(Unscored(f"reference_{reference.reason}"))
            else:
                values.append(Unscored("no_reference"))
        calibrated[name] = Scores(name, values, -1)
    return calibrated
