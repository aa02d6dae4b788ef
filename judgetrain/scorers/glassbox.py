"""Glass-box scores: how good a response is, read off the model's own probabilities (glass-box paper)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from judgetrain.errors import ConfigError
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.ensembles import EnsembleSettings, decoding_ensemble, prompt_ensemble, self_generation
from judgetrain.scorers.features import FEATURES, Formula, combine, ensemble_exp, ensemble_var, reference_sentprob
from judgetrain.scorers.prompts import ScorerPrompts, load_scorer_prompts, with_illustration
from judgetrain.scorers.results import Result, TokenStatistics

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

Value = float | Unscored

SINGLE_PASS = tuple(FEATURES["paper"])
ENSEMBLES = ("decensem_exp", "decensem_var", "prmensem_exp", "prmensem_var")
METHODS = (*SINGLE_PASS, "softmax_combo", *ENSEMBLES, "self_generation")
"""Every glass-box score by name. ``decensem_*`` score the model on the prompt, whatever the given response."""


@dataclass(frozen=True)
class Scores:
    """Scores of n samples by one method.

    ``values``: the feature itself, ``[n]``, or why there is none. ``better``: 1 if more of it is better, else -1.
    """

    method: str
    values: Sequence[Value]
    better: int

    @property
    def oriented(self) -> list[float | None]:
        """The scores turned so that higher is better, ``[n]``; None where there is none."""
        return [None if isinstance(v, Unscored) else self.better * v for v in self.values]

    @property
    def unscored(self) -> Counter[str]:
        """How many samples have no score, by reason."""
        return Counter(v.reason for v in self.values if isinstance(v, Unscored))


def direction(method: str, formula: Formula = "paper") -> int:
    """1 if more of a feature is better, -1 if less is.

    Raises:
        ConfigError: no such method.
    """
    check_methods([method])
    if method in SINGLE_PASS:
        return FEATURES[formula][method].better
    return -1 if method.endswith("_var") else 1


def check_methods(methods: Sequence[str]) -> None:
    """Refuse an unknown method.

    Raises:
        ConfigError: names it and what is allowed.
    """
    for method in methods:
        if method not in METHODS:
            raise ConfigError(f"glass-box score {method!r}: allowed are {', '.join(METHODS)}")


def score(
    scorer: TokenScorer,
    samples: Sequence[Sample],
    methods: Sequence[str] = ("sentprob", "softmax_ent", "softmax_var", "softmax_combo"),
    *,
    formula: Formula = "paper",
    illustration: bool = False,
    calibration: bool = False,
    ensembles: EnsembleSettings | None = None,
    prompts: ScorerPrompts | None = None,
    seed: int = 0,
) -> dict[str, Scores]:
    """Scores of every sample by each method.

    Everything that one pass gives is computed in one pass, in which attention is eager only if a method reads it.

    Args:
        scorer: the model whose probabilities are read.
        samples: responses with their prompts, and references where ``illustration`` or ``calibration`` asks for them.
        methods: of :data:`METHODS`; ``softmax_combo`` normalises over the given samples.
        formula: the paper's equations, or what its released code computes.
        illustration: put query and reference before the prompt as an example (section 3.1).
        calibration: subtract the model's uncertainty about the reference (section 3.2): SentProb-Ref, from the
            feature turned so that lower is better. It shifts all responses to one prompt alike, and no self-rating.
        ensembles: passes and sampling of ensembles and of self-generation.
        prompts: the prompt set.
        seed: of sampled passes.

    Raises:
        ConfigError: an unknown method.
        EngineError: attention weights are asked for and cannot be had.
    """
    check_methods(methods)
    settings, wording = ensembles or EnsembleSettings(), prompts or load_scorer_prompts()
    shown = [with_illustration(s) if illustration and s.reference else s for s in samples]
    missing = [Unscored("no_reference") if illustration and not s.reference else None for s in samples]
    found = _single_pass(scorer, shown, methods, formula)
    if any(m.startswith("prmensem") for m in methods):
        _ensemble(found, "prmensem", lambda: prompt_ensemble(scorer, shown, wording, settings, formula, seed))
    if any(m.startswith("decensem") for m in methods):
        _ensemble(found, "decensem", lambda: decoding_ensemble(scorer, shown, settings, formula, seed))
    if "self_generation" in methods:
        found["self_generation"] = Scores("self_generation", self_generation(scorer, shown, wording, settings, seed), 1)
    found = {
        name: replace(scores, values=[gone or value for gone, value in zip(missing, scores.values, strict=True)])
        for name, scores in found.items()
    }
    if calibration:
        found = _calibrated(found, scorer, samples)
    if "softmax_combo" in methods:
        found["softmax_combo"] = combo(found["softmax_ent"], found["softmax_var"])
    return {method: found[method] for method in methods}


def read(results: Sequence[Result], method: str, formula: Formula = "paper") -> Scores:
    """One single-pass feature of token statistics that are there already."""
    feature = FEATURES[formula][method]
    values: list[Value] = [r if isinstance(r, Unscored) else _finite(feature.read(r)) for r in results]
    return Scores(method, values, feature.better)


def _finite(value: float) -> Value:
    """A feature's value; where logits or attention weights made it infinite or NaN there is none."""
    return value if math.isfinite(value) else Unscored("non_finite")


def combo(entropy: Scores, variance: Scores) -> Scores:
    """Softmax-combo: the normalised sum of Softmax-Ent and Softmax-Var, turned so that higher is better."""
    total = combine(entropy.oriented, variance.oriented)
    values: list[Value] = []
    for first, second, value in zip(entropy.values, variance.values, total, strict=True):
        gone = first if isinstance(first, Unscored) else second if isinstance(second, Unscored) else None
        values.append(gone or cast(float, value))
    return Scores("softmax_combo", values, 1)


def _single_pass(
    scorer: TokenScorer, samples: Sequence[Sample], methods: Sequence[str], formula: Formula
) -> dict[str, Scores]:
    wanted = [m for m in methods if m in SINGLE_PASS]
    if "softmax_combo" in methods:
        wanted += [m for m in ("softmax_ent", "softmax_var") if m not in wanted]
    if not wanted:
        return {}
    attention = any(FEATURES[formula][m].attention for m in wanted)
    results = scorer.statistics(samples, attention)
    return {method: read(results, method, formula) for method in wanted}


def _ensemble(found: dict[str, Scores], kind: str, run: Callable[[], Sequence[Sequence[float] | Unscored]]) -> None:
    passes = run()
    reads: Mapping[str, Callable[[Sequence[float]], float]] = {"exp": ensemble_exp, "var": ensemble_var}
    for name, of in reads.items():
        values: list[Value] = [p if isinstance(p, Unscored) else of(p) for p in passes]
        found[f"{kind}_{name}"] = Scores(f"{kind}_{name}", values, direction(f"{kind}_{name}"))


def _calibrated(found: Mapping[str, Scores], scorer: TokenScorer, samples: Sequence[Sample]) -> dict[str, Scores]:
    """Every score but self-ratings minus the model's uncertainty about the reference; these are better when lower."""
    references = scorer.statistics([Sample(s.prompt, s.reference or "") for s in samples])
    bias: list[Value] = [
        Unscored("no_reference")
        if not s.reference
        else reference_sentprob(r)
        if isinstance(r, TokenStatistics)
        else Unscored(f"reference_{r.reason}")
        for s, r in zip(samples, references, strict=True)
    ]
    result = {}
    for name, scores in found.items():
        if name == "self_generation":
            result[name] = scores
            continue
        values: list[Value] = []
        for value, subtract in zip(scores.values, bias, strict=True):
            if isinstance(value, Unscored) or isinstance(subtract, Unscored):
                values.append(value if isinstance(value, Unscored) else subtract)
            else:
                values.append(-scores.better * value - subtract)
        result[name] = Scores(name, values, -1)
    return result
