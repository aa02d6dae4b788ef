"""A scorer over the tiny model."""

from __future__ import annotations

import pytest

from judgetrain.scorers.statistics import TokenScorer
from tests.builders.engines import tiny_llama, word_tokenizer


@pytest.fixture(scope="session")
def scorer() -> TokenScorer:
    tokenizer = word_tokenizer()
    return TokenScorer(tiny_llama(len(tokenizer), max_position_embeddings=512), tokenizer, batch_size=4)
