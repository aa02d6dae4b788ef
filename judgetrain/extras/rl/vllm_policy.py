"""Have vLLM sample the branches of stage rl, in processes of its own, with the weights of the step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any

from judgetrain.engines.config import VllmEngineConfig
from judgetrain.engines.vllm_engine import VllmEngine


class TakesWeights:
    """A method that is added to vLLM's workers, each of which imports this module."""

    def take_weights(self: Any, weights: str) -> None:
        """Take the weights of a directory in place of those in memory."""
        self.reload_weights(weights_path=weights)
        for layer in self.model_runner.get_model().modules():
            if type(layer).__name__ == "ParallelLMHead" and hasattr(layer, "cpu_linear"):
                # A CPU has packed a copy of a head that is tied to the embeddings, and reloads these alone.
                layer.quant_method.process_weights_after_loading(layer)


class RecordingVllm(VllmEngine):
    """vLLM as a :class:`~judgetrain.extras.rl.trainer.Recording` that can be given other weights."""

    def __init__(self, config: VllmEngineConfig, max_context: int) -> None:
        # vLLM's workers are other processes, which find the class by its name.
        extended = {"worker_extension_cls": f"{TakesWeights.__module__}.{TakesWeights.__qualname__}"}
        super().__init__(replace(config, vllm=config.vllm | extended))
        self.max_context = min(self.max_context, max_context)
        self.tokens: dict[tuple[int | None, int | None], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def record(self, seed: int, place: int, prompt: Sequence[int], ids: Sequence[int]) -> None:
        """Remember the token ids of a request and of its completion."""
        self.tokens[seed, place] = (tuple(prompt), tuple(ids))

    def load(self, weights: str) -> None:
        """Take the weights of a directory, and forget what was read with the old ones."""
        self._llm.collective_rpc("take_weights", args=(weights,))
        # What is cached was computed with the old weights.
        self._llm.reset_prefix_cache()


@dataclass
class VllmPolicy:
    """Gives vLLM, with the policy's weights, whenever the trainer samples.

    Args:
        config: the engine, over the start's weights.
        max_length: as of the stage.
        weights: where the policy's weights lie for it; the directory is gone at the end.
        lend: gives the policy, given the trainer.
    """

    config: VllmEngineConfig
    max_length: int
    weights: Path
    lend: Callable[[Any], AbstractContextManager[Any]]
    _step: int = 0

    @cached_property
    def _engine(self) -> RecordingVllm:
        return RecordingVllm(self.config, self.max_length)

    @contextmanager
    def __call__(self, trainer: Any) -> Iterator[RecordingVllm]:
        """Yield the engine with the weights of the trainer's step; earlier samples are forgotten."""
        if self._step != trainer.state.global_step:
            # At step 0 the engine still has the start's weights, which it was loaded with.
            with self.lend(trainer) as model:
                model.save_pretrained(self.weights)
            self._engine.load(str(self.weights))
            self._step = trainer.state.global_step
        self._engine.tokens.clear()
        yield self._engine

    def close(self) -> None:
        """End vLLM's processes."""
        # The property is in the instance once it was asked for: closing must not load the engine.
        if "_engine" in vars(self):
            self._engine.close()
        rmtree(self.weights, ignore_errors=True)
