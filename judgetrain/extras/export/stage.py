"""Stage ``export``: a judge that reads one response as a classifier, whose labels are the levels of its score.

The judge's frame for one response begins with the score, so that the expected score is known from the prompt alone: it
is the softmax over the levels' rows of the language head at the place before the score. That is a sequence classifier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import LocalEngineConfig, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.engines.prompting import continuation, render, token_ids
from judgetrain.errors import EngineError
from judgetrain.extras.export.stages import ExportSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.prompting.parsing import SCORES
from judgetrain.judges.prompting.prompts import PromptSet

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TEMPLATE = "template.txt"
SLOTS = ("query", "criterion", "guideline", "response")
APART = 1e-3
"""How far the classifier's levels may be from the judge's, in probability."""
PROBES = ("?", "It is right.", "Six minutes in boiling water, then cold water.")
"""Responses that both are asked about, once the classifier is written."""
_LABEL = re.compile(r"([\w ]+: ?)\[1-5\]")

CARD = """---
library_name: transformers
pipeline_tag: text-classification
tags: [judgetrain, llm-judge]
---

# {name} as a classifier

Scores one response by one criterion. The labels are the levels 1 to 5. The expected score is the sum of each level
times its probability; it equals the judge's own (`judge.reads=one`) where the judge's reply can be read.

`{template}` is the prompt. Fill in its slots ({slots}), and tokenize it without special tokens: it holds them.
The judge marks lines of a response that imitate the prompt's headings; this template does not.

```bash
vllm serve {directory} --runner pooling
curl localhost:8000/classify -d '{{"model": "{directory}", "input": "FILLED TEMPLATE", "add_special_tokens": false}}'
```

`/score` and `/rerank` want one label, which the expected level is not: read `/classify`.
"""


def run(settings: ExportSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``model/``: the classifier, its tokenizer, :data:`TEMPLATE` and a card.

    Raises:
        EngineError: the judge's score does not follow from its prompt alone, or its model has no such classifier.
    """
    models, method = Models(settings, inputs, out), settings.method
    directory = models.directory(method)
    assert directory is not None
    own = settings.engine.model if isinstance(settings.engine, LocalEngineConfig) else ModelConfig()
    place = out.path("model")
    save(own.at(directory), models.prompts(method), place, method.name)
    out.log(f"export: {place}")


def save(config: ModelConfig, prompts: PromptSet, place: Path, name: str) -> None:
    """Write a judge's classifier into a directory, load it again and compare it with the judge.

    Raises:
        EngineError: as :func:`run`; or the two differ.
    """
    judge, tokenizer = load_model(config, "cpu"), load_tokenizer(config)
    template = render(prompts.render("score", {"context": "", **{slot: f"{{{slot}}}" for slot in SLOTS}}), tokenizer)
    text, levels = begun(prompts, tokenizer, name)
    classifier = classifier_of(judge, levels, tokenizer)
    classifier.save_pretrained(place, safe_serialization=True)
    tokenizer.save_pretrained(place)
    write_text_atomic(place / TEMPLATE, template + text)
    shown = {"name": name, "template": TEMPLATE, "slots": ", ".join(SLOTS), "directory": place}
    write_text_atomic(place / "README.md", CARD.format(**shown))
    again: PreTrainedModel = type(classifier).from_pretrained(place, dtype=judge.dtype).eval()
    for response in PROBES:
        ids = token_ids(
            tokenizer, filled(template + text, query="Why?", criterion="x", guideline="y", response=response)
        )
        own = at_end(judge, ids)[..., list(levels)].softmax(-1)
        apart = float((at_end(again, ids).softmax(-1) - own).abs().max())
        if not apart <= APART:
            raise EngineError(
                f"{name}: the classifier's levels are {apart:.3g} from the judge's (at most {APART:g}): the "
                f"{judge.config.model_type} model does more after its head than a classifier does"
            )


def begun(prompts: PromptSet, tokenizer: PreTrainedTokenizerBase, name: str) -> tuple[str, tuple[int, ...]]:
    """How the judge's reply begins up to its score, and the token of each level after that.

    Raises:
        EngineError: the frame has something else before its score, or the levels are no single tokens.
    """
    frame = prompts.frames["score"]
    if (label := _LABEL.match(frame)) is None:
        raise EngineError(
            f"{name}: the prompt set {prompts.name!r} has text before the score ({frame!r}): the score follows from "
            "what the judge writes, and a classifier writes nothing; take a set whose frame begins with the score"
        )
    prompt = render(prompts.render("score", {"context": "", **dict.fromkeys(SLOTS, "x")}), tokenizer)
    ids = token_ids(tokenizer, prompt)
    written = [continuation(tokenizer, prompt, ids, f"{label[1]}{score}\n") for score in SCORES]
    for text in (label[1], label[1].rstrip()):
        before = token_ids(tokenizer, prompt + text)[len(ids) :]
        levels = tuple(each[len(before)] for each in written)
        if len(set(levels)) == len(SCORES) and all(each[: len(before)] == before for each in written):
            return text, levels
    raise EngineError(f"{name}: its tokenizer has no token of its own for each level after {label[1]!r}")


def classifier_of(judge: PreTrainedModel, levels: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The judge's model with the levels' rows of its language head as the head of a classifier.

    Raises:
        EngineError: Transformers has no such classifier for it.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    config: Any = type(judge.config).from_dict(judge.config.to_dict())
    config.id2label = dict(enumerate(SCORES))
    config.label2id = {label: i for i, label in config.id2label.items()}
    config.pad_token_id = tokenizer.pad_token_id
    try:
        found: Any = AutoModelForSequenceClassification.from_config(config, dtype=judge.dtype).eval()
        head = torch.nn.Parameter(judge.get_output_embeddings().weight[list(levels)].detach().clone())
        found.base_model.load_state_dict(judge.base_model.state_dict())
        assert found.score.weight.shape == head.shape
    except (ValueError, AttributeError, AssertionError, RuntimeError) as error:
        raise EngineError(
            f"Transformers has no classifier over the levels for {config.model_type} models: {error}"
        ) from error
    found.score.weight = head
    model: PreTrainedModel = found
    return model


def at_end(model: PreTrainedModel, ids: Sequence[int]) -> Any:
    """The logits at the end of a prompt, of tokens or of labels."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0]
    return (logits[-1] if logits.dim() > 1 else logits).float()


def filled(template: str, **slots: str) -> str:
    """The prompt of one response: a template with its slots filled, in one pass."""
    return re.sub(r"\{(\w+)\}", lambda match: slots.get(match[1], match[0]), template)
