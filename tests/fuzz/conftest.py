"""A run of the debug recipe that was left alone, shared by what attacks its like."""

import os
from pathlib import Path

import pytest

from tests.builders.debug_run import finished_once


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the finished run's ``output_dir``; ``JUDGETRAIN_FUZZ_RUN`` names one of the same code and settings."""
    if run_directory := os.environ.get("JUDGETRAIN_FUZZ_RUN"):
        return Path(run_directory)
    return finished_once(tmp_path_factory)
