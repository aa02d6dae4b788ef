"""What of an evaluation is to be relied on: ``guarantees`` (docs/guarantees.md)."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import beside, key


@dataclass
class GuaranteesConfig:
    """What a run must show."""

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
