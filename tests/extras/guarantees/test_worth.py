"""Whether training paid: what is set beside the judge, what is said, and where it stands."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import Predicted
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.extras.guarantees.gate import GateError, require_passed
from judgetrain.extras.guarantees.worth import PARTS, TrainingGain, worth
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.pipeline.config import Config
from judgetrain.rubrics import Criterion, Rubric
from tests.builders.evaluate import UNATTACKED, answers, benchmark, judge, manifest, pairs, refused, run, write_rows

WHOLE = benchmark(60)
RUBRIC = Rubric((Criterion(text="right"),))
BRINGING = replace(WHOLE, comparisons=[replace(comparison, rubric=RUBRIC) for comparison in WHOLE.comparisons])
"""The same comparisons, each with criteria of its own."""


def paid(name: str, k: int, right: int, tokens: int = 0) -> list[Prediction]:
    return [replace(p, cost=Cost(tokens * 0.75, tokens * 0.25, 1)) for p in answers(name, k, WHOLE, right)]


def found(
    *results: list[Prediction],
    required: tuple[str, ...] = (),
    objective: str | None = None,
    methods: tuple[str, ...] = (),
    test: Benchmark = WHOLE,
    **fields: Any,
) -> TrainingGain | None:
    """``methods``: as the configuration writes them, where that is not as their results are called."""
    written = methods or tuple(dict.fromkeys(r[0].method for r in results))
    config = Config(
        objective=objective,
        guarantees=GuaranteesConfig(required=list(required)),
        evaluate=EvaluateConfig(methods=list(written), bootstrap=2000),
    )
    settings = EvaluateSettings.of(config)
    return worth(Predicted(settings=settings, test=test, results=results, **fields), results)


def lineage(root: Path) -> Path:
    """Return a dpo artifact's directory, made from all that training needs; each stage took a second."""
    upstream: dict[str, str] = {}
    for stage in "dialogues cluster responses teacher initial tree label sft reference dpo".split():
        directory = manifest(root, stage, "0" * 6, upstream)
        upstream = {stage: "0" * 6}
    return directory


def test_what_training_gains_is_said_with_what_it_took(tmp_path: Path) -> None:
    """Right on 45 and on 30 of 60; seven stages of a second are training's; 200 tokens beside 800.

    The judge sees both orders at 100 each; the rubric reads each response once, which serves both.
    """
    results = [
        [replace(p, plan="shared") for p in paid("dpo", 10, 45, 100)],
        paid("rubric:70:teacher", 0, 30, 800),
        paid("longer", 0, 20),
    ]
    gain = found(*results, inputs={"dpo": lineage(tmp_path)})
    assert gain is not None and gain.pays
    assert (gain.judge, gain.than, gain.n, gain.seconds, gain.tokens) == ("dpo@10", "rubric:70:teacher", 60, 7.0, 0.25)
    assert gain.difference == 0.25
    # the last fifteen of the first 45 items are the difference: an independent bootstrap of their share
    rng = np.random.default_rng(5)
    gained = np.array([0] * 30 + [1] * 15 + [0] * 15)
    ends = np.percentile(rng.choice(gained, (20_000, 60)).mean(axis=1), [2.5, 97.5])
    assert gain.difference_ci == pytest.approx(tuple(ends), abs=0.02)
    low, high = (f"{100 * end:.1f}" for end in gain.difference_ci or ())
    assert gain.told == (
        f"dpo@10: training gains 25.0 points ({low} to {high}) over the best you could do without it "
        "(rubric:70:teacher, best of 2 here), for 7.0 s and 200 tokens a verdict against 800 "
        "(read and written, in both orders)"
    )


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (20, r"training does not pay here: use longer \(dpo@3 is 16\.7 points behind, 8\.3 to 2"),
        (29, r"nothing shows that training pays here: use longer \(dpo@3 is 1\.7 points behind, -4\.3 to"),
        (30, r"nothing shows that training pays here: use longer \(dpo@3 is 0\.0 points ahead, -"),
        (32, r"nothing shows that training pays here: use longer \(dpo@3 is 3\.3 points ahead, -2\.6 to"),
        (45, r"dpo@3: training gains 25\.0 points \(.*\) over .* \(longer\), for 200 tokens a verdict against 0 "),
    ],
)
def test_where_it_does_not_pay_what_to_use_is_said(right: int, words: str) -> None:
    gain = found(paid("dpo", 3, right, 200), paid("longer", 0, 30))
    assert gain is not None and gain.pays == (right == 45) and re.match(words, gain.told)


def test_the_best_is_what_one_could_do_without_training() -> None:
    """Judges of the run in any form, criteria of other queries and published verdicts are not."""
    others = ("initial+sampled", "pairwise:sft", "external+shuffled", "stored:gpt")
    results = [paid("sft", 3, 20), paid("dpo", 3, 40), *(paid(name, 0, 55) for name in others)]
    assert found(*results) is None
    assert found(*results, paid("base+given", 3, 55), test=BRINGING) is None
    for name in ("base", "prompted:external", "fewshot:70", "scorer:sentprob", "pairwise:teacher", "surface"):
        gain = found(*results, paid("random", 0, 5), paid(name, 0, 30))
        assert gain is not None and (gain.judge, gain.than) == ("dpo@3", name)
    assert found(paid("longer", 0, 3)) is None


def test_the_command_s_own_criteria_are_the_user_s_and_those_of_rows_are_not() -> None:
    """By criteria=FILE the judge and the untrained base count; by criteria of the rows neither does."""
    results = [paid("dpo+given", 3, 50), paid("base+given", 3, 30), paid("longer", 0, 20), paid("initial", 3, 35)]
    of_command = found(*results)
    assert of_command is not None and (of_command.judge, of_command.than) == ("dpo+given@3", "base+given@3")
    of_rows = found(*results, test=BRINGING)
    assert of_rows is not None and (of_rows.judge, of_rows.than) == ("initial@3", "longer")


@pytest.mark.parametrize("form", ["{}", "pairwise:{}", "rubric:70:{}"])
def test_a_trained_judge_s_directory_is_known_by_what_lies_in_it(form: str, tmp_path: Path) -> None:
    # It holds a judge's settings, or lies in an artifact with a stage's manifest. Tables name it without its path.
    kept = judge(tmp_path / "dpo" / "0123456789abcdef") / "model"
    model = tmp_path / "qwen"
    bare = manifest(tmp_path, "sft", "0123456789abcdef", {}) / "model"
    for directory in (bare, model):
        directory.mkdir()
    for directory, counts in ((kept, False), (bare, False), (model, form != "{}")):
        method = Method.parse(form.format(directory))
        results = [paid("dpo", 3, 30), paid(method.name, 0, 55), paid("longer", 0, 20)]
        gain = found(*results, methods=("dpo", method.text, "longer"))
        assert gain is not None and gain.than == (method.name if counts else "longer")


@pytest.mark.parametrize(
    ("methods", "name"),
    [
        (("initial", "dpo+sampled", "dpo+vote"), "dpo+sampled"),
        (("dpo+sampled", "dpo", "sft"), "dpo"),
        (("initial+vote", "pairwise:dpo", "dpo+shuffled"), "initial+vote"),
        (("sft", "initial"), "sft"),
    ],
)
def test_the_judge_is_the_last_one_trained_in_its_plain_form_or_the_first(methods: tuple[str, ...], name: str) -> None:
    gain = found(*(paid(method, 3, 40) for method in methods), paid("longer", 0, 30))
    assert gain is not None and gain.judge == f"{name}@3"


def test_the_judge_has_the_branches_that_were_asked_for() -> None:
    results = [paid("dpo", 1, 50), paid("dpo", 3, 45), paid("dpo", 10, 40), paid("longer", 0, 30)]
    gains = [found(*results), found(*results, required=("dpo@1 beats longer",))]
    gains += [found(*results, objective=f"b/{method}/agreement") for method in ("dpo@3", "longer")]
    assert [gain and gain.judge for gain in gains] == ["dpo@10", "dpo@1", "dpo@3", "dpo@10"]


def test_the_sentence_is_printed_and_stands_in_the_report_and_the_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stored verdicts are no judge of the run: a scripted run has no trained one, so that its directory stands in."""
    rows = [{"id": i, "query": f"q{i}", "response_a": "one", "response_b": "longer", "label": "A"} for i in range(30)]
    config = Config(evaluate=EvaluateConfig([pairs(tmp_path, 30)], ["sft", "longer"], [1], bootstrap=100))
    write_rows(tmp_path / "pairs.jsonl", rows)
    config.robustness = UNATTACKED
    config.guarantees.required = ["sft beats untrained"]
    out = scripted(config, tmp_path)
    (gain,) = json.loads(out.joinpath("worth.json").read_text())
    assert (gain["pays"], gain["difference"], gain["than"]) == (True, 1.0, "longer")
    assert f"evaluate: pairs: {gain['told']}" in capsys.readouterr().out
    assert f"evaluate: pairs: {gain['told']}" in out.joinpath("printed.txt").read_text(), "and again when shown again"
    assert "### Worth training" in out.joinpath("report.md").read_text()
    assert "training gains 100.0 points" in out.joinpath("report.html").read_text()
    assert PARTS["Worth training"](out, "sft") == f"- pairs (n = 30): {gain['told']}" and not PARTS["Worth training"](
        out, "dpo"
    )
    require_passed(out)
    config.evaluate.benchmarks[0] = pairs(tmp_path, 30, "B")
    write_rows(tmp_path / "pairs.jsonl", [row | {"label": "B"} for row in rows])
    with pytest.raises(GateError, match="sft@1 is not better than longer on pairs"):
        require_passed(scripted(config, tmp_path / "again"))


def scripted(config: Config, directory: Path) -> Path:
    """Return an evaluation of a judge that always prefers the response that says one."""
    from judgetrain.engines import lazy_model
    from tests.builders.scripted import ScriptedEngine, criteria, judged

    def answer(request: Any, _: int) -> str:
        if request.step == "criteria":
            return criteria(4)
        if request.step == "guideline":
            return "5 if it does."
        return judged(5, 1) if request.slots["response_a"] == "one" else judged(1, 5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(answer))
        sft = judge(directory / "artifacts" / "sft" / "s1")
        return run("evaluate", config, {"sft": sft}, directory / "artifacts" / "evaluate" / "e1").directory


def test_a_rule_about_it_needs_something_beside_the_judge(tmp_path: Path) -> None:
    config = Config(evaluate=EvaluateConfig([pairs(tmp_path, 3)], ["dpo", "initial"]))
    config.guarantees.required = ["dpo beats untrained"]
    assert "evaluate.methods has nothing that needs no training, such as rubric:70" in refused(config, "evaluate")
