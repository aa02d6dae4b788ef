"""Whether the sources of ``recipe=people_pairs`` teach the same: what labels of one say of the rows of another.

    python -m tests.benchmarks.opposed_labels data_dir=DIR

A regression on the difference of two responses' embeddings (``cluster.encoder`` of the recipe), without their query, is
fitted to the decided training pairs of a source, both ways round, and says which response is better on the development
rows. Below 50% a source teaches the opposite of what people said there. What is no option is an override of the recipe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.clustering import Encoder
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of, with_overrides
from tests.benchmarks.people_pairs_arms import Floats, Measured, right_by
from tests.builders.pipeline import configured

HARMLESS = "hh_harmless"
"""The source whose labels say which response is less harmful."""


def differences(encoder: Encoder, comparisons: Sequence[Comparison]) -> Floats:
    """Return the embeddings of first responses less those of second ones, float [comparisons, dimension]."""
    first = encoder([comparison.response_a for comparison in comparisons]).astype(float)
    second = encoder([comparison.response_b for comparison in comparisons]).astype(float)
    return first - second


def taught_by(sources: Collection[str], pairs: Sequence[Comparison], features: Floats) -> tuple[int, Floats]:
    """Return how many pairs there are of some sources, and the weights that are fitted to their labels [dimension]."""
    is_taught = np.array([pair.dialogue.source in sources for pair in pairs])
    signs = np.array([1.0 if pair.label == "A" else -1.0 for pair in pairs])[is_taught]
    of_sources = features[is_taught]
    # Both ways round, so that no order is preferred; held back as strongly as scikit-learn does by itself.
    both = np.concatenate([of_sources, -of_sources])
    model = LogisticRegression(fit_intercept=False).fit(both, np.concatenate([signs, -signs]))
    return int(is_taught.sum()), model.coef_[0]


def taught_sources(names: Sequence[str]) -> Mapping[str, Collection[str]]:
    """Return the sources of each row of the table, by the row's name."""
    rows: dict[str, Collection[str]] = {name: {name} for name in names}
    rows[f"all but {HARMLESS}"] = {name for name in names if name != HARMLESS}
    rows["all"] = set(names)
    return rows


def main() -> None:
    """Print the table."""
    _, overrides = with_overrides(parser_of(__doc__))
    config = configured("recipe=people_pairs", *overrides)
    responses = Pipeline(config).run("responses")
    rows = [Comparison.from_row(row) for row in read_rows(responses, "comparisons")]
    pairs = [row for row in rows if row.label in ("A", "B")]
    measured = Measured(overrides)
    encoder = Encoder(config.cluster)
    features = differences(encoder, pairs)
    held_out = {}
    for name, ids in measured.ids.items():
        held_out[name] = differences(encoder, [measured.by_id[row_id] for row_id in ids])

    print("| taught by | pairs | measured on | n | decided | right of decided % | length-balanced % |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    names = list(dict.fromkeys(pair.dialogue.source for pair in pairs))
    for row_name, sources in taught_sources(names).items():
        count, weights = taught_by(sources, pairs, features)
        for name, ids in measured.ids.items():
            rated = measured.take(ids)
            right = right_by((held_out[name] @ weights).tolist(), rated.labels)
            # Without the last cell, of verdicts in both orders, which a regression does not have.
            cells = rated.row(name, right, None).rpartition(" | ")[0]
            print(f"| {row_name} | {count:,} {cells} |", flush=True)


if __name__ == "__main__":
    main()
