"""Settings of what a run must show before its judge is relied on: ``guarantees`` (docs/guarantees.md)."""

from dataclasses import dataclass

from judgetrain.keys import key


@dataclass
class GuaranteesConfig:
    """What a run must show."""

    required: list[str] = key(
        [],
        "the gate, or the run fails: dpo beats sft, dpo@10 beats floors, dpo matches sft, dpo beats commonest "
        "(docs/guarantees.md)",
    )
    margin: float = key(
        0.05,
        "`matches`: the judge is shown to be less than this below the other, as a share of comparisons",
        above=0.0,
        high=1.0,
        active_if=lambda c: any("matches" in rule for rule in c.required),
    )
