"""Stages ``initial``, ``sft``, ``reference`` and ``dpo`` (branching paper, sections 4.2 and 4.5)."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.artifacts.integrity import lineage
from judgetrain.artifacts.shards import Rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import NothingToLearnError, causes
from judgetrain.judges.config import SETTINGS
from judgetrain.judges.method import judge_among
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.train.arguments import memory_explained
from judgetrain.train.card import CARD, REFERENCES, shows_references, write_card
from judgetrain.train.config import DpoConfig
from judgetrain.train.data import WithReminders, pairs_of
from judgetrain.train.run import RowsJob, train
from judgetrain.train.stages import DpoSettings, InitialSettings, JudgeSettings, ReferenceSettings, SftSettings


def run_initial(settings: InitialSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the Initial judge: the base model on the teacher's evaluations."""
    rows = Rows(inputs["teacher"], "examples")

    def finish(model: Path) -> None:
        save_asking(settings, model)
        _describe(model, settings, inputs, out, shows_references(load_prompt_set(settings.prompts), rows))

    job = RowsJob(
        start=settings.base,
        config=settings.train,
        key=settings.key(),
        train=rows,
        heldout=[],
        what="supervised examples",
        frames=load_prompt_set(settings.prompts).frames,
    )
    train(job, out, finish)


def save_asking(settings: InitialSettings, model: Path) -> None:
    """Write beside a judge's weights how it is asked."""
    load_prompt_set(settings.prompts).save(model)
    replace(settings.judge, reference=settings.reference).save(model, settings.criteria, settings.reads)


def run_reference(settings: ReferenceSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Log-probabilities of the preference pairs under the reference of equation 2, the SFT judge."""
    from judgetrain.train.reference import reference_logps

    pairs = _labelled(inputs["label"], "pairs", "preference pairs")
    pairs["train"] = WithReminders(inputs["label"], "pairs-train")
    with memory_explained(settings.key()):
        reference_logps(settings, settings.base.at(inputs["sft"] / "model"), pairs, out)


def run_next(settings: SftSettings | DpoSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the SFT judge: the Initial judge (or the last round's) on the branches that survived. Or the DPO judge: the
    SFT judge, which is the reference (equation 2), on the preference pairs."""
    own, supervised = settings.train, isinstance(settings, SftSettings)
    data, what = ("sft", "supervised examples") if supervised else ("pairs", "preference pairs")
    source = judge_among(inputs) / "model"
    rows, heldout = _labelled(inputs["label"], data, what).values()
    if isinstance(own, DpoConfig):
        rows = pairs_of(inputs["label"], own)
        if count := len(getattr(rows, "reminders", ())):
            out.log(f"{out.stage}: {count} examples of levels without a pair are trained beside the pairs")
    job = RowsJob(
        start=settings.base.at(source),
        config=settings.train,
        key=settings.key(),
        train=rows,
        heldout=heldout,
        what=what,
        frames=load_prompt_set(source / PROMPTS).frames,
        reference=inputs.get("reference"),
    )
    train(job, out, goes_on(source, settings, inputs, out, rows))


def goes_on(
    source: Path,
    settings: JudgeSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
    rows: Iterable[Mapping[str, Any]] = (),
) -> Callable[[Path], None]:
    """What a judge's directory gets besides its weights: how it is asked, as the judge before it, and its card.

    ``rows``: what it is trained on, where that may show reference answers that the judge before it has not seen.
    """

    def finish(directory: Path) -> None:
        for name in (PROMPTS, SETTINGS):
            shutil.copyfile(source / name, directory / name)
        before = source / CARD
        known = before.is_file() and REFERENCES in before.read_text(encoding="utf-8")
        references = known or shows_references(load_prompt_set(directory / PROMPTS), rows)
        _describe(directory, settings, inputs, out, references)

    return finish


def _labelled(label: Path, data: str, what: str) -> dict[str, Rows]:
    """What stage ``label`` made to train on, and what it holds out (NothingToLearnError: there is nothing to train on;
    says what most was lost for, and what helps)."""
    found = {split: Rows(label, f"{data}-{split}") for split in ("train", "heldout")}
    if len(found["train"]):
        return found
    if held := len(found["heldout"]):
        raise NothingToLearnError(f"there are no {what} to train on: all {held} are held out; lower label.holdout")
    skipped = json.loads((label / "yield.json").read_text(encoding="utf-8")).get("pairs_skipped", {})
    why = "raise tree.judgments or tree.criteria, grow more trees, or lower label.min_evidence"
    if any(skipped.values()):
        why = f"stage label left out {causes(skipped, {}, why)}"
    raise NothingToLearnError(f"there are no {what} to train on: {why}")


def _describe(
    directory: Path, settings: JudgeSettings, inputs: Mapping[str, Path], out: StageRun, references: bool
) -> None:
    marks: dict[str, str] = {}
    for made in lineage(*inputs.values()):
        marks.setdefault(made.parent.name, made.name)  # of two artifacts of a stage the nearer one
    arguments = dataclasses.asdict(settings.train) | {"seed": settings.seed}
    write_json_atomic(directory / "training_args.json", arguments)
    write_card(
        directory,
        stage=out.stage,
        base=settings.base,
        recipe=out.recipe,
        fingerprint=out.directory.name,
        lineage=marks,
        references=references,
    )
