"""Stage ``export``: a judge that reads one response as a classifier, whose labels are the levels of its score.

The judge's frame for one response begins with the score, so that the expected score is known from the prompt alone: it
is the softmax over the levels' rows of the language head at the place before the score. That is a sequence classifier.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import read_json, write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import LocalEngineConfig, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.engines.prompting import continuation, render, token_ids
from judgetrain.errors import EngineError
from judgetrain.extras.export.stages import ExportSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.prompting.parsing import SCORES
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.trees.grow import WITHOUT

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ROOM = Path(__file__).parent
TEMPLATE = "template.txt"
HEAD = "expected_score"
"""The module of the ranker's own code."""
PAIR = {
    "query": "messages[0].content",
    "criterion": "criterion",
    "guideline": f"guideline | default({WITHOUT!r})",
    "response": "messages[1].content",
}
"""The slots of the prompt, and how vLLM's template of a query and a document fills each of them in."""
SLOTS = tuple(PAIR)
APART = 1e-3
"""Probability by which the classifier's levels may differ from the judge's."""
PROBES = ("?", "It is right.", "Six minutes in boiling water, then cold water.")
"""Responses that both are asked about, once the classifier is written."""
_LABEL = re.compile(r"([\w ]+: ?)\[1-5\]")


def run(settings: ExportSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``model/``: the classifier, its tokenizer, :data:`TEMPLATE` and a card; and ``ranker/``, which gives its
    expected score.

    Raises:
        EngineError: the judge's score does not follow from its prompt alone, or its model has no such classifier.
    """
    models, method = Models(settings, inputs, out), settings.method
    directory = models.directory(method)
    assert directory is not None
    own = settings.engine.model if isinstance(settings.engine, LocalEngineConfig) else ModelConfig()
    place, ranker = out.path("model"), out.path("ranker")
    save(own.at(directory), models.prompts(method), place, ranker, method.name)
    out.log(f"export: {place} (/classify), {ranker} (/score, /rerank)")


def save(config: ModelConfig, prompts: PromptSet, place: Path, ranker: Path, name: str) -> None:
    """Write a judge's classifier and its ranker into two directories, load them again and compare them with the judge.

    Raises:
        EngineError: as :func:`run`; or the two differ.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    judge, tokenizer = load_model(config, "cpu"), load_tokenizer(config)
    template = render(prompts.render("score", {"context": "", **{slot: f"{{{slot}}}" for slot in SLOTS}}), tokenizer)
    text, levels = begun(prompts, tokenizer, name)
    classifier = classifier_of(judge, levels, tokenizer)
    classifier.save_pretrained(place, safe_serialization=True)
    tokenizer.save_pretrained(place)
    write_text_atomic(place / TEMPLATE, template + text)
    card = (ROOM / "card.md").read_text(encoding="utf-8")
    write_text_atomic(
        place / "README.md", card.format(name=name, slots=", ".join(SLOTS), model=place.name, ranker=ranker.name)
    )
    save_ranker(classifier, tokenizer, template + text, ranker)
    again: PreTrainedModel = type(classifier).from_pretrained(place, dtype=judge.dtype).eval()
    scores = AutoModelForSequenceClassification.from_pretrained(ranker, dtype=judge.dtype, trust_remote_code=True)
    for response in PROBES:
        ids = token_ids(
            tokenizer, filled(template + text, query="Why?", criterion="x", guideline="y", response=response)
        )
        own = at_end(judge, ids)[..., list(levels)].softmax(-1)
        levels_apart = float((at_end(again, ids).softmax(-1) - own).abs().max())
        score = float(own @ torch.linspace(0, 1, len(levels)))
        score_apart = abs(float(at_end(scores.eval(), ids)) - score)
        if not (levels_apart <= APART and score_apart <= APART):  # NaN is neither
            apart = f"its levels by {levels_apart:.3g} and its score by {score_apart:.3g} (at most {APART:g})"
            raise EngineError(f"{name}: the {judge.config.model_type} model does more after its head: {apart}")


def save_ranker(classifier: Any, tokenizer: PreTrainedTokenizerBase, template: str, place: Path) -> None:
    """Write the classifier with code of its own for its head, and the prompt as a template of query and document.

    Raises:
        EngineError: the tokenizer adds more to a text than the token that prompts begin with.
    """
    base, levels = type(classifier).__name__, classifier.config.num_labels
    renamed = {"score.weight": "classifier.weight"}
    state = {renamed.get(name, name): value for name, value in classifier.state_dict().items()}
    classifier.save_pretrained(place, state_dict=state)
    config = read_json(place / "config.json")
    config |= {"auto_map": {"AutoModelForSequenceClassification": f"{HEAD}.JudgeForScoring"}, "num_labels": 1}
    config |= {"problem_type": "regression", "id2label": {"0": "score"}, "label2id": {"score": 0}}
    write_json_atomic(place / "config.json", config)
    tokenizer.save_pretrained(place)
    code = (ROOM / f"{HEAD}.txt").read_text(encoding="utf-8")
    write_text_atomic(place / f"{HEAD}.py", code.format(base=base, levels=levels))
    adds = tokenizer("")["input_ids"]
    shown = template.removeprefix(str(tokenizer.bos_token) if adds == [tokenizer.bos_token_id] else "")
    if tokenizer(shown)["input_ids"] != [*token_ids(tokenizer, template)]:
        raise EngineError(f"vLLM has the tokenizer add {adds}, which the judge's prompt is not written for")
    parts = [PAIR.get(part, json.dumps(part, ensure_ascii=False)) for part in re.split(r"{(\w+)}", shown)]
    write_text_atomic(place / "score_template.jinja", "".join(f"{{{{ {part} }}}}" for part in parts))


def begun(prompts: PromptSet, tokenizer: PreTrainedTokenizerBase, name: str) -> tuple[str, tuple[int, ...]]:
    """Return how the judge's reply begins up to its score, and the token of each level after that.

    Raises:
        EngineError: the frame has something else before its score, or the levels are no single tokens.
    """
    frame = prompts.frames["score"]
    if (label := _LABEL.match(frame)) is None:
        told = f"{name}: the prompt set {prompts.name!r} has text before the score ({frame!r})"
        raise EngineError(f"{told}; a classifier writes none: take a set whose frame begins with the score")
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
    """Return the judge's model with the levels' rows of its language head as the head of a classifier.

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
        raise EngineError(f"Transformers has no such classifier for {config.model_type} models: {error}") from error
    found.score.weight = head
    model: PreTrainedModel = found
    return model


def at_end(model: PreTrainedModel, ids: Sequence[int]) -> Any:
    """Return the logits at the end of a prompt [tokens] or [labels]."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0]
    return (logits[-1] if logits.dim() > 1 else logits).float()


def filled(template: str, **slots: str) -> str:
    """Return the prompt of one response: a template whose slots are filled in one pass, so that no text is a slot."""
    return re.sub(r"\{(\w+)\}", lambda match: slots.get(match[1], match[0]), template)
