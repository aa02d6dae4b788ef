"""What one regression of a probe knows by itself, and what the mean of all adds.

    python -m tests.benchmarks.probe_apart EVALUATION data_dir=DIR

EVALUATION is a finished stage ``evaluate`` of ``recipe=people_pairs`` with a method ``probe:N`` of the base; what is no
option is an override of that recipe. Its states are read as they were kept: no model is loaded. Each regression is
fitted to all labelled pairs that were read, as the probe fits it.

The last rows may know which response is longer, and by how much: a regression on that alone, or on that and the probe's
log-odds, which is fitted to the labels of the other prompts among the rows that are measured on (ten folds).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from judgetrain.artifacts.integrity import MANIFEST, lineage
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.prompt_keys import conversation_starts, key_of_dialogue
from judgetrain.extras.untrained.probe import FOLDS, Probe, read_states
from judgetrain.schema import Comparison
from judgetrain.scorers.encode import DEPTHS, PLACES
from tests.benchmarks.common import parser_of, with_overrides
from tests.benchmarks.people_pairs_arms import Floats, Measured, right_by


def compared_in(evaluation: Path) -> dict[str, Comparison]:
    """Return the training comparisons of the stage that an evaluation's labelled pairs were drawn from, by id."""
    for directory in lineage(evaluation):
        if json.loads((directory / MANIFEST).read_text())["stage"] == "responses":
            rows = map(Comparison.from_row, read_rows(directory, "comparisons"))
            return {comparison.id: comparison for comparison in rows}
    raise SystemExit(f"{evaluation}: it has no stage responses among its inputs: give an evaluation with probe:N")


def fitted_to_others(features: Floats, labels: Sequence[str], prompts: Sequence[str]) -> Floats:
    """Return the log-odds of A being better, nats [rows], each from what was fitted to other prompts' labels.

    Args:
        features: float [rows, features], which exchange their sign with the responses.
        labels: of the rows; ties teach nothing.
        prompts: of the rows.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    signs = np.array([{"A": 1.0, "B": -1.0}.get(label, 0.0) for label in labels])
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    groups = [numbers[prompt] for prompt in prompts]
    margins = np.zeros(len(features))
    for others, fold in GroupKFold(FOLDS).split(features, groups=groups):
        decided = others[signs[others] != 0]
        # Both ways round, so that no order is preferred; two features at most, so that nothing has to be held back.
        both = np.concatenate([features[decided], -features[decided]])
        targets = np.concatenate([signs[decided], -signs[decided]])
        model = LogisticRegression(C=100.0, fit_intercept=False).fit(both, targets)
        margins[fold] = features[fold] @ model.coef_[0]
    return margins


def main() -> None:
    """Fit each regression alone, and print its row of the table."""
    parser = parser_of(__doc__)
    parser.add_argument("evaluation", type=Path)
    options, overrides = with_overrides(parser)
    by_id = compared_in(options.evaluation)
    kept_of_pairs = read_states(options.evaluation, "states-learned-probe.base")
    pairs = [by_id[row["id"]] for row in kept_of_pairs.rows if row["is_read"]]
    signs = [1.0 if pair.label == "A" else -1.0 for pair in pairs]
    prompts = conversation_starts([key_of_dialogue(pair.dialogue) for pair in pairs])
    train = kept_of_pairs.states

    measured = Measured(overrides)
    ids = []
    of_benchmarks = []
    for name in measured.ids:
        kept = read_states(options.evaluation, f"states-{name}-probe.base")
        read = [f"{name}/{row['id']}" for row in kept.rows if row["is_read"]]
        is_labelled = [row_id in measured.by_id for row_id in read]
        ids += [row_id for row_id, labelled in zip(read, is_labelled, strict=True) if labelled]
        of_benchmarks.append(kept.states[is_labelled])
    held_out = np.concatenate(of_benchmarks)
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
    mean = np.mean(of_columns, axis=0)
    lengths = np.array([measured.by_id[row_id].length_ratio for row_id in ids])
    rows_of_table = {
        "their mean": mean,
        "length, fitted to these rows": fitted_to_others(lengths[:, None], rated.labels, rated.prompts),
        "their mean and length, fitted to these rows": fitted_to_others(
            np.column_stack([mean, lengths]), rated.labels, rated.prompts
        ),
    }
    for name, margins in rows_of_table.items():
        right = right_by(margins.tolist(), rated.labels)
        print(f"{rated.row(name, right, None)} {rated.differences(right, rated.right_of_longer)} |")


if __name__ == "__main__":
    main()
