"""How often one person is right by another's label: what a judge that learns from people can reach at most.

    python -m tests.benchmarks.people_agree data_dir=DIR

Each comparison of PandaLM's development rows has the labels of three annotators. Of every two of them one says the
verdict and the other the label, and then the other way round; the measures are those of every judge of
``recipe=people_pairs``, with which a person's tie counts half. The last row is the verdict of two annotators by the
label of the third: their mean, as of a jury.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from tests.benchmarks.common import parser_of, with_overrides
from tests.benchmarks.people_pairs_arms import Measured, Rated, right_by
from tests.builders.pipeline import configured

BENCHMARK = "pandalm_measured"
ANNOTATORS = ("annotator1", "annotator2", "annotator3")
AHEAD = {0: 0.0, 1: 1.0, 2: -1.0}
"""How far the first response is ahead, by an annotator's number in the file."""
LABELS = {0.0: "tie", 1.0: "A", -1.0: "B"}


def annotations(path: Path) -> dict[str, list[float]]:
    """Return how far each annotator puts the first response ahead, by the row's id."""
    by_id = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            by_id[str(row["idx"])] = [AHEAD[row[name]] for name in ANNOTATORS]
    return by_id


def judged(measured: Measured, by_id: dict[str, list[float]], jury: int) -> tuple[Rated, list[float]]:
    """Return rows whose label is one annotator's, and the verdicts of others as margins.

    Args:
        measured: the rows.
        by_id: of :func:`annotations`.
        jury: how many others say the verdict together.
    """
    ids = []
    labels = []
    margins = []
    for row_id in measured.ids[BENCHMARK]:
        ahead = by_id[row_id.rpartition(":")[2]]
        for person in range(len(ahead)):
            others = [place for place in range(len(ahead)) if place != person]
            for together in itertools.combinations(others, jury):
                ids.append(row_id)
                labels.append(LABELS[ahead[person]])
                margins.append(fmean(ahead[place] for place in together))
    taken = measured.take(ids)
    return Rated(ids=ids, labels=labels, longer=taken.longer, prompts=taken.prompts, kinds=taken.kinds), margins


def table(measured: Measured, by_id: dict[str, list[float]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| who | n | decided | right of decided % | length-balanced % | strict % | less longer: right | balanced |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, jury in (("one person, by another's label", 1), ("two people, by the third's label", 2)):
        rated, margins = judged(measured, by_id, jury)
        right = right_by(margins, rated.labels)
        strict = [LABELS.get(margin, "") == label for margin, label in zip(margins, rated.labels, strict=True)]
        yield f"{rated.row(name, right, strict)} {rated.differences(right, rated.right_of_longer)} |"


def main() -> None:
    """Print the table."""
    _, overrides = with_overrides(parser_of(__doc__))
    config = configured("recipe=people_pairs", *overrides)
    file = Path(config.data_dir) / "pandalm" / "testset-v1.jsonl"
    for line in table(Measured(overrides), annotations(file)):
        print(line)


if __name__ == "__main__":
    main()
