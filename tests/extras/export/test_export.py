"""A judge as a sequence classifier: its levels are the judge's own, and what has none is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest

from judgetrain.artifacts.console import Console
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.engines.prompting import render
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.export import stage as export
from judgetrain.extras.export.stage import fill_slots, score_place
from judgetrain.judges import load_judge
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.prompting.prompts import judgment_slots, load_prompt_set
from judgetrain.judges.saved import save_settings
from judgetrain.pipeline.run import Pipeline
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Candidates
from tests.builders.pipeline import configured

WORDING = load_prompt_set("compact")
RUBRIC = Rubric((Criterion(text="Accuracy: what it says is right", guideline="5 if it is right throughout."),))


def learned(steps: int = 40) -> tuple[Any, Any]:
    """Return the world's base after a few steps of scoring one response: as many points as "a" is in it, at most 5."""
    import torch

    tokenizer = load_tokenizer(ModelConfig(path="world"))
    model = load_model(ModelConfig(path="world"), "cpu")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    rows = eval_comparisons(WorldConfig(eval_comparisons=8 * steps), 5)
    (criterion,) = RUBRIC.criteria
    for step in range(steps):
        texts = []
        for c in rows[8 * step : 8 * step + 8]:
            slots = judgment_slots(c, "A", criterion.line, str(criterion.guideline))
            score = max(1, min(5, c.response_a.split().count("a") + c.response_a.split().count("it")))
            end = f"Score: {score}\nAnalysis: it is good.{tokenizer.eos_token}"
            texts.append(render(WORDING.render("score", slots), tokenizer) + end)
        batch = tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        model.train()(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("judge") / "model"
    for part in learned():
        part.save_pretrained(directory)
    WORDING.save(directory)
    save_settings(JudgeConfig(judgment_tokens=32), directory, criteria=4)
    return directory


def exported(home: Path, judge: Path | str, *overrides: str) -> Path:
    words = ("recipe=debug", f"output_dir={home}", "track.tracker=none", f"verdicts.judge={judge}", *overrides)
    return Pipeline(configured(*words), Console()).run("export") / "model"


def test_expected_scores_of_200_prompts_are_the_judges_own(trained: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    place = exported(tmp_path, trained, "judge.reads=one")
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=100), 3)
    groups = [Candidates(c.id, c.dialogue, (c.response_a, c.response_b), RUBRIC) for c in comparisons]
    judge: Any = load_judge(trained, reads="one", retries=0)
    judge_scores = [score.reasons[0].score_a for scores in judge.score_batch(groups) for score in scores]
    model: Any = AutoModelForSequenceClassification.from_pretrained(place)
    tokenizer: Any = AutoTokenizer.from_pretrained(place)
    template = (place / "template.txt").read_text()
    (criterion,) = RUBRIC.criteria
    slots = {"criterion": criterion.line, "guideline": str(criterion.guideline)}
    shown = [fill_slots(template, query=g.dialogue.query, response=r, **slots) for g in groups for r in g.responses]
    batch = tokenizer(shown, add_special_tokens=False, padding=True, return_tensors="pt")
    with torch.no_grad():
        levels = model(**batch).logits.softmax(-1).tolist()
    assert len(judge_scores) == len(levels) == 200 and None not in judge_scores
    expected = [sum((i + 1) * p for i, p in enumerate(row)) for row in levels]
    assert expected == pytest.approx(judge_scores, abs=1e-3)
    assert len({round(score, 3) for score in judge_scores}) > 50, "they differ"
    assert list(model.config.id2label.values()) == ["1", "2", "3", "4", "5"]
    assert type(model).__name__ == "LlamaForSequenceClassification" and (place / "model.safetensors").is_file()
    alone: Any = AutoModelForSequenceClassification.from_pretrained(place.parent / "ranker", trust_remote_code=True)
    pairs = (place.parent / "ranker" / "score_template.jinja").read_text()
    for group, text, score in zip(groups[:5], shown[::2], judge_scores[::2], strict=False):
        messages = [{"content": group.dialogue.query}, {"content": group.responses[0]}]
        assert jinja2.Template(pairs).render(messages=messages, **slots) == text
        with torch.no_grad():
            found_score = alone(**tokenizer(text, return_tensors="pt")).logits.item()
        assert 1 + 4 * found_score == pytest.approx(score, abs=1e-3)


def test_what_cannot_be_exported_exactly_is_refused_by_name(trained: Path, tmp_path: Path) -> None:
    for judge, how, message in (
        (trained, (), "a classifier scores one response.*judge.reads=one"),
        (trained, ("judge.reads=one", "judge.score=parsed"), "leave judge.score=auto"),
        ("pairwise:base", ("judge.reads=one",), "trained judges are exported"),
        ("base", ("judge.reads=one",), "trained judges are exported"),
    ):
        with pytest.raises(ConfigError, match=message):
            exported(tmp_path, judge, *how)
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    analysis = replace(WORDING, frames={**WORDING.frames, "score": r"Analysis: [^\n]{1,{width}}\nScore: [1-5]"})
    with pytest.raises(EngineError, match="has text before the score"):
        score_place(analysis, tokenizer, "mine")
    words = replace(WORDING, frames={**WORDING.frames, "score": r"Zzyzx: [1-5]"})
    assert score_place(words, tokenizer, "mine")[1] == score_place(WORDING, tokenizer, "mine")[1], (
        "the levels' tokens stay"
    )


def test_a_model_that_does_more_after_its_head_is_refused(trained: Path, tmp_path: Path) -> None:
    import torch

    class Capped(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2.0 * torch.tanh(super().forward(x) / 2.0)

    load = export.load_model

    def capped(config: ModelConfig, device: str) -> Any:
        model: Any = load(config, device)
        model.lm_head.__class__ = Capped
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "load_model", capped)
        with pytest.raises(EngineError, match="the llama model does more after its head: its levels by"):
            export.save(ModelConfig(path=str(trained)), WORDING, tmp_path / "model", tmp_path / "ranker", "mine")
    at_end = export.logits_at_end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            export, "logits_at_end", lambda m, ids: at_end(m, ids) * (float("nan") if m.config.num_labels == 1 else 1)
        )
        with pytest.raises(EngineError, match="its score by nan"):
            export.save(ModelConfig(path=str(trained)), WORDING, tmp_path / "nan", tmp_path / "nan-ranker", "mine")
