"""What a judge's verdicts add to the length of responses, where length speaks otherwise by what people were asked.

    python -m tests.benchmarks.beside_length EVALUATION data_dir=DIR

EVALUATION is a finished stage ``evaluate`` of ``recipe=people_pairs``; what is no option is an override of that recipe.
People who were asked which response helps more mostly prefer the longer one, and those who were asked which harms less
the shorter one. So what may know length is fitted for each kind of rows apart, by the criteria that they bring: to the
labels of the other prompts among the rows that are measured on (ten folds). A judge that adds something is above the
row of length alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.benchmarks.common import parser_of, with_overrides
from tests.benchmarks.people_pairs_arms import Floats, Measured, Rated, right_by, rows_of
from tests.benchmarks.probe_apart import fitted_to_others


def by_kind(features: Floats, kinds: Sequence[tuple[str, ...]]) -> Floats:
    """Return features [rows, kinds * features]: each row has its own in the columns of its kind, and else zeros."""
    columns = []
    for kind in dict.fromkeys(kinds):
        is_of_kind = np.array([other == kind for other in kinds])
        columns.append(features * is_of_kind[:, None])
    return np.concatenate(columns, axis=1)


def differences(name: str, right: Floats, floors: dict[str, Floats], rated: Rated) -> str:
    """Return a row of what a rule is right in more often than each floor, on the same rows."""
    cells = [rated.differences(right, of_floor) for of_floor in floors.values()]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table of all methods of an evaluation, with length and without."""
    parser = parser_of(__doc__)
    parser.add_argument("evaluation", type=Path)
    options, overrides = with_overrides(parser)
    measured = Measured(overrides)
    ids, methods = rows_of(options.evaluation)
    rated = measured.take(ids)
    kinds = rated.kinds
    lengths = np.array([[measured.by_id[row_id].length_ratio] for row_id in ids])

    of_length = fitted_to_others(by_kind(lengths, kinds), rated.labels, rated.prompts)
    right_of = {"longer": rated.right_of_longer, "length by kind": right_by(of_length.tolist(), rated.labels)}
    floors = dict(right_of)
    for name, of_method in methods.items():
        right_of[name] = np.array(of_method.right)
        # A verdict that could not be read speaks for neither side.
        read = [0.0 if margin is None else margin for margin in of_method.margins]
        both = np.column_stack([read, lengths])
        margins = fitted_to_others(by_kind(both, kinds), rated.labels, rated.prompts)
        right_of[f"{name} and length by kind"] = right_by(margins.tolist(), rated.labels)

    print("| rule | n | decided | right of decided % | length-balanced % | strict % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, right in right_of.items():
        print(rated.row(name, right, None))
    # What the rule would have if all rows were taken for one kind, which is why they are not.
    of_one_kind = replace(rated, kinds=[()] * len(ids))
    print(of_one_kind.row("length by kind, balanced over all kinds at once", right_of["length by kind"], None))
    print(f"\n| less, on the same rows | {' | balanced | '.join(floors)} | balanced |")
    print(f"| --- |{' --- |' * 2 * len(floors)}")
    for name, right in right_of.items():
        print(differences(name, right, floors, rated))
    for kind in dict.fromkeys(kinds):
        is_of_kind = [place for place, other in enumerate(kinds) if other == kind]
        of_kind = rated.only(is_of_kind)
        print(f"\n| {'; '.join(kind) or 'which is better'} | n | decided | right | balanced | strict |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, right in right_of.items():
            print(of_kind.row(name, right[is_of_kind], None))


if __name__ == "__main__":
    main()
