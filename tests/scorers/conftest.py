"""A scorer over the tiny model."""

import pytest

from tests.builders.scorers import tiny_scorer

scorer = pytest.fixture(scope="session")(tiny_scorer)
