"""Run the stages ``initial``, ``sft``, ``reference`` and ``dpo`` (branching paper, sections 4.2 and 4.5)."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.files import write_json_atomic
from judgetrain.artifacts.integrity import lineage
from judgetrain.artifacts.shards import Rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import NothingToLearnError, causes
from judgetrain.judges.method import judge_among
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import LEARNED_CRITERIA, SETTINGS, save_criteria, save_settings
from judgetrain.train.arguments import memory_explained
from judgetrain.train.card import CARD, REFERENCES, Origin, shows_references, write_card
from judgetrain.train.config import DpoConfig
from judgetrain.train.data import WithReminders, pairs_of
from judgetrain.train.run import RowsJob, train
from judgetrain.train.stages import DpoSettings, InitialSettings, JudgeTrainingSettings, ReferenceSettings, SftSettings


def run_initial(settings: InitialSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the Initial judge: the base model on the teacher's evaluations."""
    rows = Rows(inputs["teacher"], "examples")

    prompts = load_prompt_set(settings.prompts)
    # Read before training, which takes long: what the user does with the file meanwhile changes nothing.
    criteria = text_of_criteria(settings)

    def finish(model: Path) -> None:
        save_asking(settings, criteria, model)
        references = shows_references(prompts, rows)
        _describe(model, settings, inputs, out, references)

    job = RowsJob(
        start=settings.base,
        config=settings.train,
        key=settings.key(),
        train=rows,
        heldout=[],
        what="supervised examples",
        frames=prompts.frames,
    )
    train(job, out, finish)


def text_of_criteria(settings: InitialSettings) -> str | None:
    """Return the text of the file of criteria (``criteria``) that the judge is taught by; None where there is none."""
    if settings.rubric is None:
        return None
    return Path(settings.rubric).expanduser().read_text(encoding="utf-8-sig")


def save_asking(settings: InitialSettings, criteria: str | None, model: Path) -> None:
    """Write beside a judge's weights how it is asked: its prompts, settings and the criteria that it was taught by."""
    load_prompt_set(settings.prompts).save(model)
    judge = replace(settings.judge, reference=settings.reference)
    save_settings(judge, model, settings.criteria, settings.reads)
    save_criteria(criteria, model)


def run_reference(settings: ReferenceSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write the log-probabilities of the preference pairs under the reference of equation 2, which is the SFT judge."""
    from judgetrain.train.reference import reference_logps

    pairs = _labelled(inputs["label"], "pairs", "preference pairs")
    # Stage dpo may train on reminders too, and takes from here what it needs.
    pairs["train"] = WithReminders(inputs["label"], "pairs-train")
    with memory_explained(settings.key()):
        reference_logps(settings, settings.base.at(inputs["sft"] / "model"), pairs, out)


def run_next(settings: SftSettings | DpoSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train the SFT judge on the branches that survived, or the DPO judge on the preference pairs.

    The SFT judge starts from the Initial judge, or from the last round's. The DPO judge starts from the SFT judge,
    which is its reference (equation 2).
    """
    label = inputs["label"]
    source = judge_among(inputs) / "model"
    if isinstance(settings.train, DpoConfig):
        what = "preference pairs"
        heldout = _labelled(label, "pairs", what)["heldout"]
        rows = pairs_of(label, settings.train)
        reminders = len(getattr(rows, "reminders", ()))
        if reminders:
            out.log(
                f"{out.stage}: {amount(reminders, 'example')} of levels without a pair {agree(reminders, 'are')} "
                "trained beside the pairs"
            )
    else:
        what = "supervised examples"
        splits = _labelled(label, "sft", what)
        rows = splits["train"]
        heldout = splits["heldout"]
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
    settings: JudgeTrainingSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
    rows: Iterable[Mapping[str, Any]] = (),
) -> Callable[[Path], None]:
    """Return what adds to a judge's directory how the judge is asked, as the judge before it, and its card.

    Args:
        source: the directory of the judge before it.
        settings: of the stage.
        inputs: the stage's inputs by name.
        out: the stage's directory.
        rows: training rows that may show reference answers, which the judge before it may not have seen.
    """

    def finish(directory: Path) -> None:
        names = [PROMPTS, SETTINGS]
        # A judge that names its own criteria has no file of others.
        if (source / LEARNED_CRITERIA).is_file():
            names.append(LEARNED_CRITERIA)
        for name in names:
            shutil.copyfile(source / name, directory / name)
        card = source / CARD
        # The card of the judge before is where it stands what that one was trained with.
        references = card.is_file() and REFERENCES in card.read_text(encoding="utf-8")
        if not references:
            references = shows_references(load_prompt_set(directory / PROMPTS), rows)
        _describe(directory, settings, inputs, out, references)

    return finish


def _labelled(label: Path, name: str, what: str) -> dict[str, Rows]:
    """Return what stage ``label`` made to train on and what it holds out, as ``train`` and ``heldout``.

    Args:
        label: the stage's artifact.
        name: of the rows in it, as ``pairs``.
        what: the rows are, for the error.

    Raises:
        NothingToLearnError: there is nothing to train on; says what most was lost for, and what helps.
    """
    splits = {split: Rows(label, f"{name}-{split}") for split in ("train", "heldout")}
    if len(splits["train"]):
        return splits

    heldout = len(splits["heldout"])
    if heldout:
        raise NothingToLearnError(f"there are no {what} to train on: all {heldout} are held out; lower label.holdout")
    # Stage label has written why it left pairs out, so that the error can say what to change.
    skipped = json.loads((label / "yield.json").read_text(encoding="utf-8")).get("pairs_skipped", {})
    why = "raise tree.judgments or tree.criteria, grow more trees, or lower label.min_evidence"
    if any(skipped.values()):
        why = f"stage label left out {causes(skipped, {}, why)}"
    raise NothingToLearnError(f"there are no {what} to train on: {why}")


def _describe(
    directory: Path, settings: JudgeTrainingSettings, inputs: Mapping[str, Path], out: StageRun, references: bool
) -> None:
    """Write the judge's card and the arguments of its training into its directory."""
    marks: dict[str, str] = {}
    for artifact in lineage(*inputs.values()):
        # The nearest comes first, so of two artifacts of a stage that one is named.
        marks.setdefault(artifact.parent.name, artifact.name)
    # Without what came from the environment, since a judge's directory is shared.
    arguments = out.written(dataclasses.asdict(settings.train), settings.key())
    arguments["seed"] = settings.seed
    write_json_atomic(directory / "training_args.json", arguments)
    origin = Origin(stage=out.stage, recipe=out.recipe, fingerprint=out.directory.name, lineage=marks)
    write_card(directory, settings.base, origin, references)
