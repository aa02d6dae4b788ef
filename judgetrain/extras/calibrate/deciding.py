"""Thresholds of what a judge decides, chosen on labelled rows that it is asked about as stage judge asks it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.labelled import OVERALL, Scale
from judgetrain.data.prompt_keys import conversation_starts, prompt_digest, prompt_key
from judgetrain.engines.answers import spending
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.calibrate.promise import Promise, pair_thresholds, score_thresholds
from judgetrain.judges.deciding import DECIDED, Thresholds, Units
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.aggregation import Fitted
from judgetrain.judges.kinds.tree_scores import items_of
from judgetrain.judging.items import JudgedRow
from judgetrain.judging.stage import check_rows, judge_of, shard_of
from judgetrain.judging.votes import labels_that_count, response_labels_that_count

if TYPE_CHECKING:
    from judgetrain.extras.calibrate.stages import CalibrateSettings

JUDGED = "judged"
"""The name of the shards."""


def choose_thresholds(
    items: Sequence[JudgedRow], settings: CalibrateSettings, inputs: Mapping[str, Path], out: StageRun
) -> None:
    """Judge labelled rows, choose thresholds on them, and write ``decided.json``.

    Args:
        items: all rows.
        settings: of the stage.
        inputs: directories of this run's judges, by stage.
        out: the stage's run.
    """
    check_rows(items, settings)
    # The rows of a file are either all of pairs or all of single responses, which check_rows has seen to.
    single = any(item.group is not None for item in items)
    if single:
        labelled = _labelled_texts(items, out)
    else:
        labelled = _labelled_pairs(items, out)
    if not labelled:
        raise no_labels(items)
    scale = labelled[0].scales.get(OVERALL)
    # Before anything is judged, which may be paid for.
    passing_level = 0
    if scale is not None:
        passing_level = level_that_passes(scale, settings.calibrate.passes)

    # The judge is asked exactly as stage judge asks it, early stop and all: a promise is of answers as they are used.
    with spending(settings.asked_engines, settings.verdicts, "verdicts", out) as budget:
        models = Models(settings, inputs, out, budget)
        options = models.options(settings.method, settings.method.most or 1)
        check_not_fitted_to(labelled, options.fitted)
        with judge_of(models, settings) as judge:
            process = shard_of(settings.method, judge, settings, scored=single, labelled=single)
            # What is paid for is asked by one process, which counts what it spends.
            spread = budget is None
            size = settings.verdicts.shard_size
            out.sharded(JUDGED, labelled, size, Work(process=process, load=judge, spread=spread), "rows")

    # After judging and not before: which row of a prompt counts must not change the shards that are there already.
    rows = one_of_each_prompt(list(read_rows(out.directory, JUDGED)))
    if len(rows) < len(labelled):
        out.log(f"calibrate: of {len(labelled)} labelled rows {len(rows)} count, one of each prompt")
    if scale is not None:
        thresholds = of_responses(rows, scale, passing_level, settings)
    else:
        # Weights fitted to pairs turn margins into log-odds. The units are written with the thresholds, so that a judge
        # that is asked without the weights refuses them.
        units: Units = "points"
        if options.fitted is not None and not options.fitted.single:
            units = "log_odds"
        thresholds = of_pairs(rows, units, settings)
    # A promise holds for the judge that it was measured on, asked as it was.
    thresholds = replace(thresholds, asked=options.way)
    thresholds.save(out.directory)
    out.tell(threshold_lines(thresholds))
    if thresholds.decided:
        out.log(f"calibrate: judge.decided={out.directory / DECIDED}")


def _labelled_pairs(items: Sequence[JudgedRow], out: StageRun) -> list[JudgedRow]:
    """Return the rows of pairs that can be judged and have a label that counts, with it."""
    counting = labels_that_count(items, lambda line: out.log(f"calibrate: {line}")).by_id
    labelled = []
    for item in items:
        label = counting.get(item.comparison.id, item.comparison.label)
        # An empty response loses by rule, so that nothing of it is promised.
        if item.failure is None and item.comparison.forfeit is None and label:
            labelled.append(replace(item, comparison=replace(item.comparison, label=label)))
    return labelled


def _labelled_texts(items: Sequence[JudgedRow], out: StageRun) -> list[JudgedRow]:
    """Return the rows of single responses that have a text and a label that counts, with it.

    Raises:
        DataError: all responses with a label are empty.
    """
    labelled = labelled_responses(items, lambda line: out.log(f"calibrate: {line}"))
    # As of pairs: an empty response fails by rule and unread, so that it is no evidence of how well the judge reads.
    with_text = [item for item in labelled if item.group is not None and items_of(item.group)]
    if labelled and not with_text:
        raise DataError(
            f"all {amount(len(labelled), 'labelled response')} of verdicts.source are empty, which lose by rule: "
            "label responses that have a text"
        )
    return with_text


def no_labels(items: Sequence[JudgedRow]) -> DataError:
    """Return the error that no row has a label that counts, with the likeliest reason and its remedy."""
    lacking = f"none of the {amount(len(items), 'row')} of verdicts.source has a label"
    votes = {name: of_name for item in items for name, of_name in item.votes.items() if of_name}
    if OVERALL in votes:
        return DataError(f"{lacking} that counts: of each response as many annotators say one as say the other")
    if votes:
        return DataError(
            f"{lacking} of the response as a whole, which is what calibrate goes by; they are of {', '.join(votes)}: "
            "name the column of the whole with verdicts.source.fields={label: COLUMN}"
        )
    meaning = "{WORD: A, OTHER: B}"
    if any(item.group is not None for item in items):
        meaning = "{poor: 0, fair: 0.5, good: 1}"
    return DataError(
        f"{lacking} that counts; name its column with verdicts.source.fields={{label: COLUMN}}, or say what its words "
        f"mean with verdicts.source.labels={meaning}"
    )


def labelled_responses(items: Sequence[JudgedRow], say: Callable[[str], None]) -> list[JudgedRow]:
    """Return the rows of single responses with a label of the response as a whole, each response once.

    Where several rows label one response, as when each annotator has a row, the first of them has the label that all
    give together.

    Args:
        items: all rows.
        say: takes a sentence about such rows, where there are any.
    """
    counting = response_labels_that_count(items, say)
    labelled = []
    for item in items:
        if item.group is None:
            continue
        label = counting.get(item.comparison.id, item.labels).get(OVERALL)
        if label is None:
            continue
        # As the only vote the label of all stays what it is.
        labelled.append(replace(item, votes={OVERALL: (label,)}))
    return labelled


def check_not_fitted_to(labelled: Sequence[JudgedRow], fitted: Fitted | None) -> None:
    """Refuse labelled rows (DataError) on prompts that the judge's weights were fitted to.

    On these the judge is better than on new rows, and the error would be above what is promised.

    Args:
        labelled: the rows.
        fitted: the judge's weights; None: it goes by the mean.
    """
    if fitted is None:
        return
    prompts = {prompt_digest(item.comparison.dialogue.user_texts) for item in labelled}
    known = prompts.intersection(fitted.prompts)
    if known:
        raise DataError(
            f"verdicts.source: {len(known)} of {amount(len(prompts), 'labelled prompt')} "
            f"{agree(len(known), 'are')} among those that the weights of judge.fitted were fitted to, of which nothing "
            "can be promised: take labelled rows on other prompts"
        )


def one_of_each_prompt(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row of each prompt: rows on one prompt are no independent draws, which the bound takes.

    It is drawn by the responses' digests. The first row would not do: files often name the better response of each
    prompt first. Nor would the surest: a choice by what the judge said would bend the sample.
    """
    # A row without a prompt is about nothing that another row could be about: it stands for itself.
    starts = conversation_starts([prompt_key(row) or ("row", str(place)) for place, row in enumerate(rows)])
    drawn: dict[Any, tuple[str, dict[str, Any]]] = {}
    for row, start in zip(rows, starts, strict=True):
        digest = _digest(row)
        if start not in drawn or digest < drawn[start][0]:
            drawn[start] = (digest, row)
    return [row for _, row in drawn.values()]


def _digest(row: Mapping[str, Any]) -> str:
    """Return what a row is drawn by: the same whatever its place in the file, its id and the order of a pair."""
    responses = [row[column] for column in ("response", "response_a", "response_b") if column in row]
    return hashlib.sha256("\0".join(sorted(responses)).encode(errors="surrogatepass")).hexdigest()


def of_pairs(rows: Sequence[Mapping[str, Any]], units: Units, settings: CalibrateSettings) -> Thresholds:
    """Return the thresholds of margins (ConfigError: the judge gives none; DataError: too few labels)."""
    config = settings.calibrate
    assert config.error is not None
    margins = []
    for row in rows:
        # Where the orders differ there is no answer that could be wrong, whatever the mean margin is.
        margin = None
        if row["verdict"] in ("A", "B", "tie"):
            margin = row["margin"]
        margins.append(margin)
    # A row without a verdict has no margin from any judge: it takes a verdict for a side to show that this one gives
    # none.
    if any(row["verdict"] in ("A", "B") for row in rows) and all(row["margin"] is None for row in rows):
        raise ConfigError(
            f"verdicts.judge={settings.verdicts.judge}: it gives verdicts without a margin, which thresholds are of; "
            "branching and pointwise judges give one"
        )
    right = [row["verdict"] == row["label"] for row in rows]
    return pair_thresholds(margins, right, units, Promise(config.error, config.delta))


def of_responses(
    rows: Sequence[Mapping[str, Any]], scale: Scale, passing_level: int, settings: CalibrateSettings
) -> Thresholds:
    """Return the thresholds of scores (DataError: too few labels, or labels that are all alike)."""
    config = settings.calibrate
    assert config.error is not None

    # Half way between the highest level that fails and the lowest that passes, where a score is nearer to neither.
    middle = (scale.scores[passing_level - 1] + scale.scores[passing_level]) / 2
    passed = [scale.level(row["label"]) >= passing_level for row in rows]
    name = scale.names[passing_level]
    scores = [row["score"] for row in rows]
    return score_thresholds(scores, passed, middle, Promise(config.error, config.delta), name)


def level_that_passes(scale: Scale, name: str | None) -> int:
    """Return the number of the lowest level that passes (ConfigError: no such level, or none is named)."""
    names = ", ".join(scale.names)
    if name is None:
        if scale.has_two_levels:
            return 1
        raise ConfigError(
            f"calibrate.error: labels have the {amount(len(scale.names), 'level')} {names}, and what decides is "
            "a pass or a "
            "fail: name the lowest level that passes with calibrate.passes"
        )
    # The worst level cannot be the lowest one that passes: nothing would fail.
    if name not in scale.names[1:]:
        raise ConfigError(f"calibrate.passes={name!r}: allowed are {', '.join(scale.names[1:])}")
    return scale.names.index(name)


def threshold_lines(thresholds: Thresholds) -> Iterator[str]:
    """Yield the lines at the stage's end."""
    # Nothing decided is a finding: the artifact is written, so that the same labels are not judged again.
    if not thresholds.decided:
        yield (
            f"nothing is decided: not even where the judge is surest can it be promised that at most "
            f"{thresholds.error:.0%} of its answers are wrong ({amount(thresholds.n, 'label')})"
        )
        return

    yield (
        f"decided {_where(thresholds)}: {thresholds.decided} of {thresholds.n} labelled rows, {thresholds.wrong} of "
        "them wrong"
    )
    # Not the bound at this threshold, which may be lower: the rows chose the threshold, and of what they chose no more
    # is promised than what each threshold was tested for.
    yield f"promised: {promise_text(thresholds)}"
    yield f"left to a person or a stronger judge: {thresholds.undecided:.1%}"


def promise_text(thresholds: Thresholds) -> str:
    """Return in words what is promised of the answers that are decided."""
    of_what = "of what is decided is"
    if thresholds.of_scores:
        of_what = "of decided passes, and of decided fails, are"
    return f"with a chance of {1 - thresholds.delta:g} at most {thresholds.error:.0%} {of_what} wrong"


def _where(thresholds: Thresholds) -> str:
    """Return in words where a judge decides."""
    if not thresholds.of_scores:
        unit = "points"
        if thresholds.units == "log_odds":
            unit = "nats"
        return f"from a margin of {thresholds.margin or 0.0:.2f} {unit} on"
    parts = []
    if thresholds.high is not None:
        name = "a pass"
        if thresholds.passes != "pass":
            name = f"a pass ({thresholds.passes})"
        parts.append(f"{name} from a score of {thresholds.high:.3f} on")
    if thresholds.low is not None:
        parts.append(f"a fail down from {thresholds.low:.3f}")
    return ", ".join(parts)


def thresholds_card(directory: Path, judge: str) -> str:
    """Return the section of a judge's card on the thresholds chosen for it; empty for another stage's artifact."""
    if not (directory / DECIDED).is_file():
        return ""
    thresholds = Thresholds.load(directory, "thresholds")

    # The console's lines as sentences of one paragraph.
    sentences = [line[0].upper() + line[1:] for line in threshold_lines(thresholds)]
    text = f"{'. '.join(sentences)}."
    if thresholds.decided:
        text += " The promise is of rows like the labelled ones."
    return text
