"""What one regression of a probe knows by itself, and what the mean of all adds.

    python -m tests.benchmarks.probe_apart EVALUATION data_dir=DIR

EVALUATION is a finished stage ``evaluate`` of ``recipe=people_pairs`` with a method ``probe:N`` of the base; what is no
option is an override of that recipe. Its states are read as they were kept: no model is loaded. Each regression is
fitted to all labelled pairs that were read, as the probe fits it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.prompt_keys import conversation_starts, key_of_dialogue
from judgetrain.extras.untrained.probe import Probe, states_in
from judgetrain.schema import Comparison
from judgetrain.scorers.states import DEPTHS, PLACES
from tests.benchmarks.common import parser_of, with_overrides
from tests.benchmarks.people_pairs_arms import Measured, right_by


def compared_in(evaluation: Path) -> dict[str, Comparison]:
    """Return the training comparisons of the stage that an evaluation's labelled pairs were drawn from, by id."""
    for directory in lineage(evaluation):
        if json.loads((directory / MANIFEST).read_text())["stage"] == "responses":
            rows = map(Comparison.from_row, read_rows(directory, "comparisons"))
            return {comparison.id: comparison for comparison in rows}
    raise SystemExit(f"{evaluation}: it has no stage responses among its inputs: give an evaluation with probe:N")


def main() -> None:
    """Fit each regression alone, and print its row of the table."""
    parser = parser_of(__doc__)
    parser.add_argument("evaluation", type=Path)
    options, overrides = with_overrides(parser)
    by_id = compared_in(options.evaluation)
    learned = [row for row in read_rows(options.evaluation, "states-learned-probe.base") if row["states"] is not None]
    pairs = [by_id[row["id"]] for row in learned]
    signs = [1.0 if pair.label == "A" else -1.0 for pair in pairs]
    prompts = conversation_starts([key_of_dialogue(pair.dialogue) for pair in pairs])
    train = states_in(learned)

    measured = Measured(overrides)
    ids = []
    rows = []
    for name, of_benchmark in measured.ids.items():
        kept = {f"{name}/{row['id']}": row for row in read_rows(options.evaluation, f"states-{name}-probe.base")}
        for row_id in of_benchmark:
            if kept[row_id]["states"] is not None:
                ids.append(row_id)
                rows.append(kept[row_id])
    held_out = states_in(rows)
    rated = measured.take(ids)

    print(f"{len(pairs)} labelled pairs")
    print("| regression | n | decided | right of decided % | length-balanced % | strict % | less longer | balanced |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    of_columns = []
    for column in range(train.shape[1]):
        alone = Probe.fitted(train[:, [column]], signs, prompts, "probe_apart").margins(held_out[:, [column]])
        of_columns.append(alone)
        right = right_by(alone.tolist(), rated.labels)
        name = f"{PLACES[column % len(PLACES)]}, {100 * DEPTHS[column // len(PLACES)]:.0f}% of the layers"
        print(f"{rated.row(name, right, None)} {rated.differences(right, rated.right_of_longer)} |", flush=True)
    right = right_by(np.mean(of_columns, axis=0).tolist(), rated.labels)
    print(f"{rated.row('their mean', right, None)} {rated.differences(right, rated.right_of_longer)} |")


if __name__ == "__main__":
    main()
