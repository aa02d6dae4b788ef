"""Settings of the command report."""

from dataclasses import dataclass

from judgetrain.keys import key


@dataclass
class ReportConfig:
    """stage=report: one report of several evaluations."""

    runs: list[str] = key(
        [], "evaluations, globs of them, or a sweep's directory; empty: all of output_dir", in_fingerprint=False
    )
    name: str = key("all", "the report is written to output_dir/reports/NAME", in_fingerprint=False)
