"""Text generation with vLLM on this machine's GPUs, or on its CPU where there are none."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts.fingerprint import ADAPTERS
from judgetrain.engines import loading
from judgetrain.engines.base import LOGPROBS, Choice, Completion, Request, choices_of, places
from judgetrain.engines.config import VllmEngineConfig, model_commit
from judgetrain.engines.prompting import encode
from judgetrain.errors import EngineError, EngineLostError

CPU_TOKENS = 4096
"""Prompt tokens that a CPU reads at once."""


class VllmEngine:
    """Generates with ``vllm.LLM``; prompts are rendered and encoded as for every local engine (EngineError: vLLM is
    not installed, or it cannot load the model).

    vLLM batches by itself, shares common prefixes, spreads a model over ``tensor_parallel_size`` GPUs, and runs it in
    processes of its own, which :meth:`close` ends.
    """

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
        if not gguf_file:
            loading.check_weights(Path(path))
        weights = str(Path(path) / gguf_file) if gguf_file else path
        try:
            self._llm: Any = LLM(model=weights, tokenizer=path, **(_settings(config, path, gguf_file) | config.vllm))
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            told = f"vLLM cannot load {config.model.path}: {' '.join(str(error).split())[:300]}"
            more = "(no cause? See above: most often memory; set a smaller engine.vllm.gpu_memory_utilization)"
            raise EngineError(f"{told} {more}") from error
        own = self._llm.llm_engine.model_config.hf_config
        self.max_context = loading.context_length(own, config.vllm.get("max_model_len"))
        self._ends = sorted(loading.end_token_ids(config.model, self.tokenizer))

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order; each samples with ``seed`` plus its place.

        Raises:
            EngineError: the chat template refuses every prompt.
            EngineLostError: vLLM's own process has ended, as where memory runs out.
        """
        fits, done = encode(requests, self.tokenizer, self.max_context)
        if fits:
            place = places(requests)
            try:
                outputs = self._llm.generate(
                    [{"prompt_token_ids": list(prompt)} for prompt in fits.values()],
                    sampling_params=[self._params(requests[i], seed + place[i]) for i in fits],
                    use_tqdm=False,
                )
            except Exception as error:
                if type(error).__name__ != "EngineDeadError":  # where it is defined moves with vLLM's versions
                    raise
                what = "most often memory; lower engine.vllm.gpu_memory_utilization or engine.vllm.max_num_seqs"
                raise EngineLostError(f"{self.name}: vLLM's process has ended, as it says above: {what}") from error
            for index, output in zip(fits, outputs, strict=True):
                best = output.outputs[0]
                self.record(seed, place[index], fits[index], best.token_ids)
                done[index] = Completion(
                    text=best.text,
                    prompt_tokens=len(fits[index]),
                    generated_tokens=len(best.token_ids),
                    finish_reason="length" if best.finish_reason == "length" else "stop",
                    choices=_choices(best, requests[index].sampling.candidates),
                )
        return [done[index] for index in range(len(requests))]

    def record(self, seed: int, place: int, prompt: Sequence[int], ids: Sequence[int]) -> None:
        """Told of every completion: the token ids that were read and generated, the end token included."""

    def close(self) -> None:
        """End vLLM's processes, with which the memory of their GPUs is free; the engine cannot be used afterwards."""
        if (llm := self.__dict__.pop("_llm", None)) is not None:
            llm.llm_engine.engine_core.shutdown()
            del llm
            gc.collect()

    def _params(self, request: Request, seed: int) -> Any:
        from vllm import SamplingParams

        sampling = request.sampling
        wanted: dict[str, Any] = {"logprobs": LOGPROBS} if sampling.candidates else {}
        wanted |= {"top_k": sampling.top_k} if sampling.top_k else {}
        if sampling.pattern:
            from vllm.sampling_params import StructuredOutputsParams

            wanted["structured_outputs"] = StructuredOutputsParams(regex=sampling.pattern)
        return SamplingParams(
            temperature=sampling.temperature,
            # Zero mass means the single most probable token here; vLLM wants a positive number.
            top_p=max(sampling.top_p, 1e-6),
            max_tokens=sampling.max_new_tokens,
            stop=list(sampling.stop) or None,
            stop_token_ids=self._ends or None,
            seed=seed % 2**63,
            **wanted,
        )


def _settings(config: VllmEngineConfig, path: str, gguf_file: str | None) -> dict[str, Any]:
    """The arguments of ``vllm.LLM`` that a configuration decides; ``path``: the model's directory or Hub id."""
    from vllm.platforms import current_platform

    model = config.model
    given = {
        "revision": model_commit(model.path, model.revision) or model.revision,
        "trust_remote_code": model.trust_remote_code,
        "tensor_parallel_size": config.tensor_parallel_size,
        "enable_prefix_caching": True,
        # The model's own generation_config would add top_k and the like to what the caller asked for.
        "generation_config": "vllm",
        "dtype": model.dtype,
    }
    if gguf_file is None and "quantization" not in config.vllm:
        # vLLM's own "auto" takes float16 for weights kept in float32: other numbers than Transformers'.
        given["dtype"] = str(loading.resolve_dtype(model.dtype)).removeprefix("torch.")
    if current_platform.is_cpu() and gguf_file is None:
        # A request with a seed of its own dies in vLLM where its prompt is read in parts on a CPU: whole prompts then.
        length = loading.context_length(loading.load_config(model, path), config.vllm.get("max_model_len"))
        given |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(CPU_TOKENS, length)}
    return {name: value for name, value in given.items() if value is not None}


def _choices(output: Any, candidates: Sequence[str]) -> tuple[Choice, ...]:
    """The candidates' probabilities where the output wrote one of them (``logprobs``: one mapping a token, of ids to
    ``logprob`` and ``decoded_token``)."""
    if not (candidates and output.logprobs):
        return ()
    tokens = (
        (at[i].decoded_token.encode(), [(t.decoded_token, t.logprob) for t in at.values()])
        for at, i in zip(output.logprobs, output.token_ids, strict=True)
    )
    return choices_of(tokens, candidates, output.text)
