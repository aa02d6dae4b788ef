"""What a part of a divided data set holds, to be printed and kept: counts, labels, and a hash of its rows."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from judgetrain.amounts import amount
from judgetrain.data.parts import Parted, prompt_hash
from judgetrain.schema import Comparison


@dataclass(frozen=True, kw_only=True)
class PartFacts:
    """The content of a part.

    Args:
        rows: comparisons.
        prompts: different first questions.
        decided: comparisons with the label A or B.
        longer_right: the share of these whose better response is the longer one, equal lengths half; None of none.
        ids: SHA-256 of the comparisons' ids in alphabetical order, a line each: equal for equal parts.
    """

    rows: int
    prompts: int
    decided: int
    longer_right: float | None
    ids: str

    @classmethod
    def of(cls, comparisons: Collection[Comparison]) -> "PartFacts":
        """Return the facts of a part's comparisons, in any order."""
        rights = []
        for comparison in comparisons:
            if comparison.label not in ("A", "B"):
                continue
            right = float(comparison.longer == comparison.label)
            if comparison.longer == "tie":
                right = 0.5
            rights.append(right)
        longer_right = None
        if rights:
            longer_right = round(sum(rights) / len(rights), 4)
        ids = "".join(f"{name}\n" for name in sorted(comparison.id for comparison in comparisons))
        return cls(
            rows=len(comparisons),
            prompts=len({prompt_hash(comparison.dialogue) for comparison in comparisons}),
            decided=len(rights),
            longer_right=longer_right,
            ids=hashlib.sha256(ids.encode("utf-8", "surrogatepass")).hexdigest(),
        )

    def to_row(self) -> dict[str, Any]:
        """Return the facts as JSON has them."""
        return asdict(self)

    def __str__(self) -> str:
        longer = "–"
        if self.longer_right is not None:
            longer = f"{100 * self.longer_right:.1f}%"
        return (
            f"{amount(self.rows, 'row')} on {amount(self.prompts, 'prompt')}, {self.decided:,} decided, "
            f"the longer is better in {longer}; sha256 of ids {self.ids[:16]}"
        )


def are_divided(settings: Sequence[Parted]) -> bool:
    """Return whether some of the sources or benchmarks take a part of their rows, so that their parts are told."""
    return any(one.part or one.only or one.leave_out for one in settings)
