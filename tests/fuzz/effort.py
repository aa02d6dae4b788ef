"""How long the attacks of this folder go on: a few of each by default and in CI, all of them by hand."""

import os


def effort(short: int, full: int) -> int:
    """Return how many attacks to make: ``full`` under ``JUDGETRAIN_FUZZ=full``, else ``short``."""
    return full if os.environ.get("JUDGETRAIN_FUZZ") == "full" else short
