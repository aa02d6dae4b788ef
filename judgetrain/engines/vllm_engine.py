"""Text generation with vLLM on this machine's GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judgetrain.engines.base import LOGPROBS, Choice, Completion, FinishReason, Request, choices_of, places
from judgetrain.engines.config import VllmEngineConfig
from judgetrain.engines.loading import ADAPTERS, context_length, load_tokenizer, resolve_path
from judgetrain.engines.prompting import encode
from judgetrain.errors import EngineError


class VllmEngine:
    """Generates with ``vllm.LLM``; prompts are rendered and encoded as for every local engine.

    vLLM batches by itself, shares common prefixes, and uses one GPU; for several, start one process per GPU or serve
    the model and use type openai.

    Raises:
        EngineError: vLLM is not installed, or it cannot load the model.
    """

    def __init__(self, config: VllmEngineConfig) -> None:
        try:
            from vllm import LLM
        except ImportError as error:
            raise EngineError("type vllm needs vLLM: pip install 'judgetrain[vllm]'") from error
        path, gguf_file = resolve_path(config.model)
        if (Path(path) / ADAPTERS).is_file():
            raise EngineError(f"{config.model.path} holds adapters, not a model: train with lora.merge=true for vLLM")
        self.name = config.name or config.model.path.rstrip("/").rsplit("/", 1)[-1]
        self.tokenizer = load_tokenizer(config.model)
        try:
            self._llm: Any = LLM(
                model=str(Path(path) / gguf_file) if gguf_file else path,
                tokenizer=path,
                revision=config.model.revision,
                dtype=config.model.dtype,
                trust_remote_code=config.model.trust_remote_code,
                max_model_len=config.max_context,
                enable_prefix_caching=True,
                # The model's own generation_config would add top_k and the like to what the caller asked for.
                generation_config="vllm",
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise EngineError(f"vLLM cannot load {config.model.path}: {' '.join(str(error).split())[:300]}") from error
        self.max_context = context_length(self._llm.llm_engine.model_config.hf_config, config.max_context)
        self._ends = [] if self.tokenizer.eos_token_id is None else [int(self.tokenizer.eos_token_id)]

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order; each samples with ``seed`` plus its place.

        Raises:
            EngineError: the chat template refuses every prompt.
        """
        fits, done = encode(requests, self.tokenizer, self.max_context)
        if fits:
            place = places(requests)
            outputs = self._llm.generate(
                [{"prompt_token_ids": list(prompt)} for prompt in fits.values()],
                sampling_params=[self._params(requests[i], seed + place[i]) for i in fits],
                use_tqdm=False,
            )
            for index, output in zip(fits, outputs, strict=True):
                best = output.outputs[0]
                reason: FinishReason = "length" if best.finish_reason == "length" else "stop"
                choices = _choices(best, requests[index].sampling.candidates)
                done[index] = Completion(
                    text=best.text,
                    prompt_tokens=len(fits[index]),
                    generated_tokens=len(best.token_ids),
                    finish_reason=reason,
                    choices=choices,
                )
        return [done[index] for index in range(len(requests))]

    def close(self) -> None:
        """Drop the model; its memory is free once vLLM's workers have gone."""
        self.__dict__.pop("_llm", None)

    def _params(self, request: Request, seed: int) -> Any:
        from vllm import SamplingParams

        sampling = request.sampling
        wanted: dict[str, Any] = {}
        if sampling.pattern:
            from vllm.sampling_params import StructuredOutputsParams

            wanted["structured_outputs"] = StructuredOutputsParams(regex=sampling.pattern)
        if sampling.candidates:
            wanted["logprobs"] = LOGPROBS
        return SamplingParams(
            temperature=sampling.temperature,
            # Zero mass means the single most probable token here; vLLM wants a positive number.
            top_p=max(sampling.top_p, 1e-6),
            max_tokens=sampling.max_new_tokens,
            stop=list(sampling.stop) or None,
            stop_token_ids=self._ends or None,
            seed=seed % 2**63,
            **wanted,
            **({"top_k": sampling.top_k} if sampling.top_k else {}),
        )


def _choices(output: Any, candidates: Sequence[str]) -> tuple[Choice, ...]:
    """The candidates' probabilities where the output wrote one of them (``logprobs``: one mapping a token, of ids to
    ``logprob`` and ``decoded_token``)."""
    if not (candidates and output.logprobs):
        return ()
    tokens = (
        (at[i].decoded_token, [(t.decoded_token, t.logprob) for t in at.values()])
        for at, i in zip(output.logprobs, output.token_ids, strict=True)
    )
    return choices_of(tokens, candidates, output.text)
