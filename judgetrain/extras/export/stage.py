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
from judgetrain.engines.answer_tokens import continuation, opening_of, token_ids
from judgetrain.engines.config import LocalEngineConfig, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.engines.memory import is_out_of_memory
from judgetrain.engines.prompting import render
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
"""The file of the classifier's prompt, whose slots stand in braces."""
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
TOLERANCE = 1e-3
"""The most that the classifier's probabilities and the ranker's score may differ from the judge's."""
PROBES = ("?", "It is right.", "Six minutes in boiling water, then cold water.")
"""Responses that the judge, the classifier and the ranker all score once these are written."""
_LABEL = re.compile(r"([\w ]+: ?)\[1-5\]")
"""The beginning of a frame that has nothing but a label before its score."""


def run(settings: ExportSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write the judge as a classifier and as a ranker.

    ``model/`` holds the classifier, its tokenizer, :data:`TEMPLATE` and a card. ``ranker/`` holds a model that gives
    the classifier's expected score.

    Raises:
        EngineError: the judge's score does not follow from its prompt alone, or its model has no such classifier.
    """
    models = Models(settings, inputs, out)
    method = settings.method
    judge_directory = models.directory(method)
    # The stage's check lets trained judges through alone, and each of these is a directory.
    assert judge_directory is not None
    config = ModelConfig()
    if isinstance(settings.engine, LocalEngineConfig):
        config = settings.engine.model
    place = out.path("model")
    ranker_place = out.path("ranker")
    save(config.at(judge_directory), models.prompts(method), place, ranker_place, method.name)
    out.log(f"export: {place} (/classify), {ranker_place} (/score, /rerank)")


def save(config: ModelConfig, prompts: PromptSet, place: Path, ranker_place: Path, name: str) -> None:
    """Write a judge's classifier and its ranker, load both again and compare them with the judge.

    Args:
        config: the judge's model.
        prompts: the judge's.
        place: the classifier's directory.
        ranker_place: the ranker's directory.
        name: the judge's, for messages and the card.

    Raises:
        EngineError: as :func:`run`; or what was written scores otherwise than the judge.
    """
    from transformers import AutoModelForSequenceClassification

    judge = load_model(config, "cpu")
    tokenizer = load_tokenizer(config)
    # Slots are filled in with their own names in braces, which makes a template of the judge's prompt.
    unfilled = {slot: f"{{{slot}}}" for slot in SLOTS}
    # Refused before anything is written: a frame that has text before its score.
    label, level_ids = score_place(prompts, tokenizer, name)
    template = render(prompts.render("score", {"context": "", **unfilled}), tokenizer) + label

    classifier = _make_classifier(judge, level_ids, tokenizer)
    classifier.save_pretrained(place, safe_serialization=True)
    tokenizer.save_pretrained(place)
    write_text_atomic(place / TEMPLATE, template)
    # The card says how the template is filled, which no configuration file of Transformers holds.
    card = (ROOM / "card.md").read_text(encoding="utf-8")
    names = {"name": name, "slots": ", ".join(SLOTS), "model": place.name, "ranker": ranker_place.name}
    write_text_atomic(place / "README.md", card.format(**names))
    _save_ranker(classifier, tokenizer, template, ranker_place)

    # From the files, since what was saved is what will be served.
    saved: PreTrainedModel = type(classifier).from_pretrained(place, dtype=judge.dtype).eval()
    ranker: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
        ranker_place, dtype=judge.dtype, trust_remote_code=True
    ).eval()
    for response in PROBES:
        # Through the written template, so that a slot that was lost on the way would be noticed.
        prompt = fill_slots(template, query="Why?", criterion="x", guideline="y", response=response)
        ids = token_ids(tokenizer, prompt)
        level_difference, score_difference = _differences(judge, level_ids, saved, ranker, ids)
        is_equal = level_difference <= TOLERANCE and score_difference <= TOLERANCE
        # Negated as a whole: a difference that is NaN is not equal either.
        if not is_equal:
            raise EngineError(
                f"{name}: the {judge.config.model_type} model does more after its head: its levels by "
                f"{level_difference:.3g} and its score by {score_difference:.3g} (at most {TOLERANCE:g})"
            )


def _differences(
    judge: PreTrainedModel,
    level_ids: Sequence[int],
    classifier: PreTrainedModel,
    ranker: PreTrainedModel,
    ids: Sequence[int],
) -> tuple[float, float]:
    """Return how far the classifier's probabilities and the ranker's score are from the judge's, after one prompt.

    Args:
        judge: a language model.
        level_ids: the token of each level, the lowest first.
        classifier: gives a logit for each level.
        ranker: gives the expected score, from 0 to 1.
        ids: the prompt's tokens.
    """
    import torch

    # Over the levels alone, as the judge reads its score: other tokens have no part in it.
    levels = logits_at_end(judge, ids)[..., list(level_ids)].softmax(-1)
    level_difference = (logits_at_end(classifier, ids).softmax(-1) - levels).abs().max()
    # The lowest level is 0 and the highest 1, as the ranker writes it.
    expected_score = levels @ torch.linspace(0, 1, len(level_ids))
    score_difference = logits_at_end(ranker, ids) - expected_score
    return float(level_difference), abs(float(score_difference))


def _save_ranker(classifier: Any, tokenizer: PreTrainedTokenizerBase, template: str, place: Path) -> None:
    """Write the classifier with code of its own for its head, and the prompt as a template of query and document.

    Raises:
        EngineError: the tokenizer adds more to a text than the token that prompts begin with.
    """
    weights = {}
    for name, weight in classifier.state_dict().items():
        saved_name = name
        if name == "score.weight":
            # vLLM's Transformers backend looks for the head by this name.
            saved_name = "classifier.weight"
        weights[saved_name] = weight
    # Saved as the classifier is, but for the name of its head; what else differs is written over below.
    classifier.save_pretrained(place, state_dict=weights)
    config = read_json(place / "config.json")
    config["auto_map"] = {"AutoModelForSequenceClassification": f"{HEAD}.JudgeForScoring"}
    # One number comes out, whatever the number of levels that it is computed from.
    config |= {"num_labels": 1, "problem_type": "regression", "id2label": {"0": "score"}, "label2id": {"score": 0}}
    write_json_atomic(place / "config.json", config)
    tokenizer.save_pretrained(place)
    # A text file, as it is no module of this package: it runs where judgetrain is not installed.
    code = (ROOM / f"{HEAD}.txt").read_text(encoding="utf-8")
    code = code.format(base=type(classifier).__name__, levels=classifier.config.num_labels)
    write_text_atomic(place / f"{HEAD}.py", code)
    write_text_atomic(place / "score_template.jinja", _pair_template(template, tokenizer))


def _pair_template(template: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the prompt as the Jinja template by which vLLM puts a query and a document together.

    Raises:
        EngineError: the tokenizer adds more to a text than the token that prompts begin with.
    """
    # vLLM lets the tokenizer add what it adds to every text, so the template must not write it as well.
    added_ids = tokenizer("")["input_ids"]
    text = template
    if added_ids == [tokenizer.bos_token_id]:
        text = template.removeprefix(str(tokenizer.bos_token))
    # Compared by tokens: a tokenizer may add an end token, or drop a blank at the start.
    if tokenizer(text)["input_ids"] != [*token_ids(tokenizer, template)]:
        raise EngineError(f"vLLM has the tokenizer add {added_ids}, which the judge's prompt is not written for")
    expressions = []
    # The pattern has a group, so that the slots' names are among the parts.
    for part in re.split(r"{(\w+)}", text):
        # Text between slots stands as a quoted string, so that braces in it are no Jinja.
        expression = PAIR.get(part, json.dumps(part, ensure_ascii=False))
        expressions.append(f"{{{{ {expression} }}}}")
    return "".join(expressions)


def score_place(prompts: PromptSet, tokenizer: PreTrainedTokenizerBase, name: str) -> tuple[str, tuple[int, ...]]:
    """Return how the judge's reply begins up to its score, and the token of each level after that.

    Args:
        prompts: the judge's.
        tokenizer: the judge's.
        name: the judge's, for messages.

    Raises:
        EngineError: the frame has something else before its score, or the levels are no single tokens.
    """
    frame = prompts.frames["score"]
    match = _LABEL.match(frame)
    if match is None:
        raise EngineError(
            f"{name}: the prompt set {prompts.name!r} has text before the score ({frame!r}); a classifier writes none: "
            "take a set whose frame begins with the score"
        )
    # With what the chat template writes before every answer, which the judge was trained behind.
    label = opening_of(tokenizer) + match[1]
    # Any content will do: only the end of the prompt has a say in how the reply is split into tokens.
    prompt = render(prompts.render("score", {"context": "", **dict.fromkeys(SLOTS, "x")}), tokenizer)
    prompt_ids = token_ids(tokenizer, prompt)
    # As they stand behind the prompt and before a line's end, since a tokenizer may join what touches.
    replies = [continuation(tokenizer, prompt, prompt_ids, f"{label}{score}\n") for score in SCORES]
    # Many tokenizers have the blank and the digit as one token: the reply then ends before the blank.
    for start in (label, label.rstrip()):
        start_ids = token_ids(tokenizer, prompt + start)[len(prompt_ids) :]
        level_ids = tuple(reply[len(start_ids)] for reply in replies)
        # All replies must begin alike and differ in the very next token, or the place before the score is none.
        is_common_start = all(reply[: len(start_ids)] == start_ids for reply in replies)
        if is_common_start and len(set(level_ids)) == len(SCORES):
            return start, level_ids
    raise EngineError(f"{name}: its tokenizer has no token of its own for each level after {label!r}")


def _make_classifier(
    judge: PreTrainedModel, level_ids: Sequence[int], tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """Return the judge's model with the levels' rows of its language head as the head of a classifier.

    Raises:
        EngineError: Transformers has no such classifier for it.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    # A copy: the judge's own configuration stays as it is.
    config: Any = type(judge.config).from_dict(judge.config.to_dict())
    config.id2label = dict(enumerate(SCORES))
    config.label2id = {label: index for index, label in config.id2label.items()}
    # A classifier finds the last token of a row by its padding.
    config.pad_token_id = tokenizer.pad_token_id
    classifier: Any
    try:
        # Made of the configuration and the loaded judge: from_pretrained would read the files a second time, and draw a
        # head at random.
        classifier = AutoModelForSequenceClassification.from_config(config, dtype=judge.dtype).eval()
        head = torch.nn.Parameter(judge.get_output_embeddings().weight[list(level_ids)].detach().clone())
        classifier.base_model.load_state_dict(judge.base_model.state_dict())
        assert classifier.score.weight.shape == head.shape
    except (ValueError, AttributeError, AssertionError, RuntimeError) as error:
        # A full machine is no fault of the architecture.
        if is_out_of_memory(error):
            raise
        raise EngineError(f"Transformers has no such classifier for {config.model_type} models: {error}") from error
    classifier.score.weight = head
    model: PreTrainedModel = classifier
    return model


def logits_at_end(model: PreTrainedModel, ids: Sequence[int]) -> Any:
    """Return the logits at the end of a prompt: float tensor [tokens] of a language model, [labels] of a classifier."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0]
    # A language model has logits at every position; a classifier has them once.
    if logits.dim() > 1:
        logits = logits[-1]
    return logits.float()


def fill_slots(template: str, **texts: str) -> str:
    """Return the prompt of one response. All slots are filled in one pass, so that no filled-in text is a slot."""
    return re.sub(r"\{(\w+)\}", lambda match: texts.get(match[1], match[0]), template)
