"""A tiny model as a Hugging Face directory, and an engine over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.local.transformers_engine import TransformersEngine
from tests.builders.engines import tiny_llama, word_tokenizer
from tests.builders.faulty_server import FaultyServer, serving


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """Yield a server that fails to order."""
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory) -> Path:
    """Return the tiny model's directory."""
    directory = tmp_path_factory.mktemp("tiny")
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(directory)
    tiny_llama(len(tokenizer)).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def engine(model_dir) -> TransformersEngine:
    """Return an engine over the tiny model that decodes four rows at a time."""
    return TransformersEngine(TransformersEngineConfig(model=ModelConfig(path=str(model_dir)), batch_size=4))
