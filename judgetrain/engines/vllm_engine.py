"""Generate text with vLLM on this machine's GPUs, or on its CPU where there are none."""

import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.amounts import amount
from judgetrain.artifacts.fingerprint import ADAPTERS
from judgetrain.artifacts.heartbeat import doing
from judgetrain.engines import loading
from judgetrain.engines.base import LOGPROBS, Choice, Completion, FinishReason, Request, choices_of, places
from judgetrain.engines.config import VllmEngineConfig, model_commit
from judgetrain.engines.digests import check_weights
from judgetrain.engines.prompting import encode
from judgetrain.errors import EngineError, EngineLostError

CPU_TOKENS = 4096
"""The least number of prompt tokens that a CPU may read at once."""
START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
"""The environment variable that says how vLLM starts its processes; what a user sets stays."""


class VllmEngine:
    """An engine that generates with ``vllm.LLM``. Prompts are rendered and encoded as for every local engine.

    vLLM batches requests, shares common prefixes, spreads a model over ``tensor_parallel_size`` GPUs, and runs it in
    its own processes, which :meth:`close` ends.

    Args:
        config: the model, and arguments for vLLM.

    Raises:
        EngineError: vLLM is not installed, or it cannot load the model.
    """

    continues = True

    def __init__(self, config: VllmEngineConfig) -> None:
        try:
            from vllm import LLM
        except ImportError as error:
            raise EngineError("type vllm needs vLLM: pip install 'judgetrain[vllm]'") from error

        path, gguf_file = loading.resolve_path(config.model)
        self.name = config.name or config.model.path.rstrip("/").rsplit("/", 1)[-1]
        self.tokenizer = loading.load_tokenizer(config.model)
        if (Path(path) / ADAPTERS).is_file():
            raise EngineError(f"{path} holds adapters, and vLLM is given whole models: merge them into their base")
        # A GGUF file is no judge that training wrote, and has no digests beside it.
        if not gguf_file:
            check_weights(Path(path))

        weights = path
        if gguf_file:
            weights = str(Path(path) / gguf_file)
        arguments = _arguments(config, path, gguf_file) | config.vllm
        # vLLM forks by default, unless CUDA is initialised. A mere torch.cuda.is_available(), by which type auto and
        # others look for a GPU, initialises nothing, yet forbids a forked child to use CUDA (PyTorch's "poison fork").
        os.environ.setdefault(START_METHOD, "spawn")
        try:
            self._llm: Any = LLM(model=weights, tokenizer=path, **arguments)
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            message = " ".join(str(error).split())[:300]
            raise EngineError(
                f"vLLM cannot load {config.model.path}: {message} (no cause? See above: most often memory; set a "
                f"smaller engine.vllm.gpu_memory_utilization)"
            ) from error
        model_config = self._llm.llm_engine.model_config.hf_config
        # vLLM may be told to allow less than the model does, to fit into memory.
        self.max_context = loading.context_length(model_config, config.vllm.get("max_model_len"))
        self._ends = sorted(loading.end_token_ids(config.model, self.tokenizer))

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return one completion per request, in order; each samples with ``seed`` plus its place.

        Raises:
            EngineError: the chat template refuses every prompt.
            EngineLostError: vLLM's process has ended, as where memory runs out.
        """
        prompts, completions = encode(requests, self.tokenizer, self.max_context)
        if prompts:
            place_of = places(requests)
            with doing(f"asking the model {amount(len(prompts), 'request')}"):
                outputs = self._outputs(requests, prompts, place_of, seed)
            for index, output in zip(prompts, outputs, strict=True):
                # One sample is asked for.
                best = output.outputs[0]
                self.record(seed, place_of[index], prompts[index], best.token_ids)
                reason: FinishReason = "stop"
                if best.finish_reason == "length":
                    reason = "length"
                completions[index] = Completion(
                    text=best.text,
                    prompt_tokens=len(prompts[index]),
                    generated_tokens=len(best.token_ids),
                    finish_reason=reason,
                    choices=_choices(best, requests[index].sampling.candidates),
                )
        return [completions[index] for index in range(len(requests))]

    def _outputs(
        self, requests: Sequence[Request], prompts: Mapping[int, Sequence[int]], place_of: Sequence[int], seed: int
    ) -> Sequence[Any]:
        """Return vLLM's output for every prompt, in order.

        Args:
            requests: all requests of the call.
            prompts: token ids by the request's index, for requests that can be asked.
            place_of: the place of every request.
            seed: the call's.
        """
        try:
            outputs: Sequence[Any] = self._llm.generate(
                [{"prompt_token_ids": list(prompt)} for prompt in prompts.values()],
                sampling_params=[self._params(requests[index], seed + place_of[index]) for index in prompts],
                use_tqdm=False,
            )
        except Exception as error:
            # The module that defines the class changes with vLLM's versions.
            if type(error).__name__ != "EngineDeadError":
                raise
            raise EngineLostError(
                f"{self.name}: vLLM's process has ended, as it says above: most often memory; lower "
                f"engine.vllm.gpu_memory_utilization or engine.vllm.max_num_seqs"
            ) from error
        return outputs

    def record(self, seed: int, place: int, prompt: Sequence[int], ids: Sequence[int]) -> None:
        """Receive the token ids that were read and generated for a completion, the end token included.

        Subclasses that look at them override it.
        """

    def close(self) -> None:
        """End vLLM's processes, which frees their GPUs' memory; the engine cannot be used afterwards."""
        llm = self.__dict__.pop("_llm", None)
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
            # vLLM's objects refer to each other in circles, which hold memory until they are collected.
            del llm
            gc.collect()

    def _params(self, request: Request, seed: int) -> Any:
        """Return vLLM's sampling parameters for a request."""
        from vllm import SamplingParams

        sampling = request.sampling
        options: dict[str, Any] = {}
        if sampling.candidates:
            options["logprobs"] = LOGPROBS
        if sampling.top_k:
            options["top_k"] = sampling.top_k
        if sampling.pattern:
            from vllm.sampling_params import StructuredOutputsParams

            options["structured_outputs"] = StructuredOutputsParams(regex=sampling.pattern)
        return SamplingParams(
            temperature=sampling.temperature,
            # Zero mass means the single most probable token here; vLLM wants a positive number.
            top_p=max(sampling.top_p, 1e-6),
            max_tokens=sampling.max_new_tokens,
            stop=list(sampling.stop) or None,
            # A chat model's ends of turns stand in its generation_config, which vLLM is told not to read.
            stop_token_ids=self._ends or None,
            # A signed number of 64 bits.
            seed=seed % 2**63,
            **options,
        )


def _arguments(config: VllmEngineConfig, path: str, gguf_file: str | None) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM`` that the configuration decides.

    Args:
        config: the engine's configuration.
        path: the model's directory or Hub id.
        gguf_file: the name of the model's GGUF file, if it has one.
    """
    from vllm.platforms import current_platform

    model = config.model
    arguments = {
        "revision": model_commit(model.path, model.revision) or model.revision,
        "trust_remote_code": model.trust_remote_code,
        "tensor_parallel_size": config.tensor_parallel_size,
        "enable_prefix_caching": True,
        # The model's own generation_config would add top_k and the like to the request's sampling.
        "generation_config": "vllm",
        "dtype": model.dtype,
    }
    if gguf_file is None and "quantization" not in config.vllm:
        # vLLM's own "auto" takes float16 for weights kept in float32: other numbers than Transformers'.
        arguments["dtype"] = str(loading.resolve_dtype(model.dtype)).removeprefix("torch.")
    if current_platform.is_cpu() and gguf_file is None:
        # On a CPU, vLLM dies of a request with a seed whose prompt is read in parts: so prompts are read whole.
        length = loading.context_length(loading.load_config(model, path), config.vllm.get("max_model_len"))
        arguments["enable_chunked_prefill"] = False
        arguments["max_num_batched_tokens"] = max(CPU_TOKENS, length)
    return {name: value for name, value in arguments.items() if value is not None}


def _choices(output: Any, candidates: Sequence[str]) -> tuple[Choice, ...]:
    """Return the candidates' probabilities wherever an output holds one of them.

    ``output.logprobs`` has a mapping for every token, from token ids to ``logprob`` and ``decoded_token``.
    """
    if not candidates or not output.logprobs:
        return ()
    tokens = []
    for ranked, token_id in zip(output.logprobs, output.token_ids, strict=True):
        likeliest = [(token.decoded_token, token.logprob) for token in ranked.values()]
        tokens.append((ranked[token_id].decoded_token.encode(), likeliest))
    return choices_of(tokens, candidates, output.text)
