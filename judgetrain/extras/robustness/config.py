"""Settings of the attacks that a judge is to stand up to: ``robustness`` (docs/robustness.md)."""

from dataclasses import dataclass

from judgetrain.extras.robustness.attacks.attack import KINDS, WORDINGS, wording_file
from judgetrain.keys import in_place, key


@dataclass
class RobustnessConfig:
    """Edits that keep the label, answers without content and forged verdicts, on a sample of each benchmark."""

    sample: int = key(8, "attacked comparisons a benchmark, labelled A or B; 0: none", low=0, unit="comparisons")
    attacks: list[str] = key(
        ["rerun", "control", "edit", "empty"],
        f"by kind ({', '.join(KINDS)}) or by name; edits and forgeries are measured against rerun",
        active_if=lambda c: c.sample,
    )
    wording: str = key(
        WORDINGS[0],
        "what the attacks say: english, or world (the quickstart's words)",
        choices=WORDINGS,
        content=in_place(wording_file),
        active_if=lambda c: c.sample,
    )
    methods: list[str] = key(
        [], "attack these of evaluate.methods; else the last trained judge alone", active_if=lambda c: c.sample
    )
