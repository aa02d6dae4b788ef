"""What metrics are computed from: one method's predictions on a benchmark; what several need is computed once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.verdicts import Bools, agreement, consistency, decided, without_ties
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison


@dataclass(frozen=True)
class Sample:
    """Predictions in the benchmark's order, the seconds of a verdict (NaN: not known), and how intervals resample.

    Lists have one value for each of the ``n`` comparisons with a label. An attribute is None where the data does not
    have it: what needs it has no value then.

    Raises:
        ValueError: predictions of other comparisons or in another order.
    """

    benchmark: Benchmark
    predictions: Sequence[Prediction]
    verdict_seconds: float
    resamples: int
    seed: int

    def __post_init__(self) -> None:
        if [p.comparison_id for p in self.predictions] != [c.id for c in self.benchmark.comparisons]:
            raise ValueError(
                f"the predictions are not those of the comparisons of {self.benchmark.name}, in their order"
            )

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Those with a label."""
        return [c for c in self.benchmark.comparisons if c.label is not None]

    @cached_property
    def labelled(self) -> list[Prediction]:
        """The predictions on them."""
        return [p for p, c in zip(self.predictions, self.benchmark.comparisons, strict=True) if c.label is not None]

    @cached_property
    def labels(self) -> list[str]:
        """``A``, ``B`` or ``tie``."""
        return [str(c.label) for c in self.comparisons]

    @cached_property
    def ab(self) -> list[str | None]:
        """Verdicts with the responses as they are."""
        return [p.verdict_ab for p in self.labelled]

    @cached_property
    def ba(self) -> list[str | None]:
        """Verdicts with the responses exchanged, in the comparison's own order."""
        return [p.verdict_ba for p in self.labelled]

    @property
    def single_ab(self) -> list[str | None] | None:
        """``ab``, for what is said of a single order; None where the orders are stored as one verdict."""
        return None if any(p.merged for p in self.labelled) else self.ab

    @property
    def single_ba(self) -> list[str | None] | None:
        """``ba``, likewise."""
        return None if any(p.merged for p in self.labelled) else self.ba

    @cached_property
    def agreed(self) -> Bools:
        """Strict agreement of each item."""
        return agreement(self.ab, self.ba, self.labels)

    @cached_property
    def consistent(self) -> Bools:
        """Whether both orders give the same readable verdict."""
        return consistency(self.ab, self.ba)

    @cached_property
    def without_ties(self) -> Bools:
        """Items whose label is A or B."""
        return without_ties(self.labels)

    @cached_property
    def decided(self) -> Bools:
        """Items that label and verdict both give to A or B."""
        return decided(self.ab, self.ba, self.labels)

    @cached_property
    def margins(self) -> list[float | None]:
        """Score of A minus score of B."""
        return [p.margin for p in self.labelled]

    @property
    def single_margins(self) -> list[float | None] | None:
        """The margins of a method without branches, such as a scorer; None if it has branches or no margin."""
        return None if self.predictions[0].branches or set(self.margins) <= {None} else self.margins

    @cached_property
    def longer(self) -> list[str]:
        """Which response is longer in characters: ``A``, ``B`` or ``tie``."""
        sizes = [(len(c.response_a), len(c.response_b)) for c in self.comparisons]
        return ["tie" if a == b else "A" if a > b else "B" for a, b in sizes]

    @cached_property
    def failures(self) -> dict[str, int]:
        """Unreadable judgments by reason, and with a colon in the name what ended a branch before its judgment."""
        found: Counter[str] = sum((Counter(p.failures) for p in self.labelled), Counter())
        return dict(sorted(found.items()))

    @cached_property
    def prompts(self) -> list[str]:
        """The prompt that each item belongs to; intervals resample prompts whole."""
        return [self.benchmark.prompt_of(c) for c in self.comparisons]

    @property
    def named_prompts(self) -> list[str] | None:
        """``prompts``, where the benchmark says which comparisons belong together."""
        return self.prompts if self.benchmark.prompts else None

    @property
    def groups(self) -> list[str | None]:
        """Each item's group."""
        return [c.group for c in self.comparisons]

    @property
    def domains(self) -> list[str | None]:
        """Each item's domain, the coarse group of its group."""
        return [self.benchmark.domains.get(c.group or "") for c in self.comparisons]

    @property
    def votes(self) -> list[tuple[Prediction, str, tuple[str, ...]]] | None:
        """Every prediction, its prompt and the votes on it, also without a majority; None where nobody voted."""
        items = zip(self.predictions, self.benchmark.comparisons, strict=True)
        votes, prompt_of = self.benchmark.votes, self.benchmark.prompt_of
        return [(p, prompt_of(c), votes.get(c.id, ())) for p, c in items] if votes else None

    @property
    def seconds(self) -> float | None:
        """Seconds of a verdict."""
        return None if math.isnan(self.verdict_seconds) else self.verdict_seconds
