"""Settings of the command view."""

from dataclasses import dataclass

from judgetrain.keys import key


@dataclass
class ViewConfig:
    """stage=view: two judges side by side."""

    of: str = key(
        "",
        "output_dir of a run, an evaluation's directory or one of stage judge; empty: output_dir",
        in_fingerprint=False,
    )
    beside: str | None = key(
        None, "a second directory of stage judge, whose judge stands beside the first one's", in_fingerprint=False
    )
    judges: list[str] = key(
        [],
        "the two judges of an evaluation, as [dpo@3, initial@1]; empty: the last trained one and the best other one",
        in_fingerprint=False,
    )
    benchmark: str | None = key(None, "the evaluation's benchmark; null: the first one", in_fingerprint=False)
    most: int = key(500, "comparisons on the page, the first ones", low=1, in_fingerprint=False)
