"""What of an evaluation is to be relied on: ``guarantees`` (docs/guarantees.md)."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import beside, key


@dataclass
class GuaranteesConfig:
    """Where a judge may answer alone, what its verdicts are worth beside labels, and what a run must show."""

    agreement: float = key(
        0.8,
        "what a judge that may abstain answers is to agree with the labels at least this often",
        above=0.0,
        high=0.999,
    )
    required: list[str] = key(
        [],
        "the gate, or the run fails after its artifact is written: dpo beats sft, dpo@10 beats floors, "
        "dpo beats untrained, dpo matches release (docs/guarantees.md)",
    )
    release: str = key(
        "",
        "directory of the last release's finished evaluation",
        content=beside(lambda directory, owner: f"{directory}/predictions.parquet" if directory else None),
        active_if=lambda c: c.required,
    )
