"""What of an evaluation is to be relied on: ``guarantees`` (docs/guarantees.md)."""

from dataclasses import dataclass

from judgetrain.keys import key


@dataclass
class GuaranteesConfig:
    """What a run must show."""

    required: list[str] = key(
        [], "the gate, or the run fails: dpo beats sft, dpo@10 beats floors, dpo matches sft (docs/guarantees.md)"
    )
