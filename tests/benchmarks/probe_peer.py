"""The peer that trains no model: logistic regressions on the frozen base's hidden states, with the same labels.

    python -m tests.benchmarks.probe_peer PAIRS KEEP data_dir=DIR train.base.dtype=bfloat16
    python -m tests.benchmarks.probe_peer PAIRS KEEP --test data_dir=DIR train.base.dtype=bfloat16

PAIRS is a finished stage ``teacher`` or ``responses`` of ``recipe=people_pairs``; what is no option is an override of
that recipe. The base reads each response once behind its conversation. Of some layers the mean state over the response,
and its last one, are kept; the better response is foreseen by the difference of both responses' states. There is one
regression for each layer and place; its strength is chosen on training pairs, by ten folds of prompts, and the mean of
their log-odds decides. KEEP holds the states of pairs that were read, which are not read again.

Rows are development rows, or with ``--test`` the test rows, which are looked at once: by each benchmark, and together.
``--apart`` measures each regression by itself, too: what one reading of the states knows, and what their mean adds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgetrain.data.prompt_keys import conversation_starts
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.extras.reward_model.judge import conversation
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of, with_overrides
from tests.benchmarks.people_pairs_arms import Measured, right_by, rows_of
from tests.benchmarks.reward_peer import labelled_pairs
from tests.builders.pipeline import configured

Floats = NDArray[np.float32]
DEPTHS = (1 / 3, 1 / 2, 2 / 3, 5 / 6, 1.0)
"""How deep in the base the states are taken, as shares of its layers."""
PLACES = ("mean over the response", "last state")
STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Inverse strengths of the L2 penalty, on differences of unit variance."""
FOLDS = 10
LONGEST = 1024
"""Tokens of a conversation; the beginning of a longer one is left out."""
BATCH = 8


def states_of(base: ModelConfig, conversations: Sequence[list[dict[str, str]]]) -> Floats:
    """Return the mean state over each response, and its last one, by depth [conversation, 2 x depth, width]."""
    import torch

    tokenizer = load_tokenizer(base)
    model: Any = load_model(base, "cuda" if torch.cuda.is_available() else "cpu").eval()
    layers = [round(depth * model.config.get_text_config().num_hidden_layers) for depth in DEPTHS]
    ids = []
    starts = []
    for messages in conversations:
        whole = tokenizer.apply_chat_template(messages, return_dict=False)
        asked = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False)
        cut = max(0, len(whole) - LONGEST)
        ids.append(whole[cut:])
        # An empty response is read by the last token before it.
        starts.append(max(0, min(len(asked) - cut, len(whole) - cut - 1)))
    # Texts of like length are read together, so that little is padding.
    order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    states: list[Floats] = [np.zeros(0, dtype=np.float32)] * len(ids)
    with torch.inference_mode():
        for begin in range(0, len(order), BATCH):
            places = order[begin : begin + BATCH]
            width = max(len(ids[place]) for place in places)
            padded = torch.zeros(len(places), width, dtype=torch.long)
            mask = torch.zeros_like(padded)
            for row, place in enumerate(places):
                padded[row, : len(ids[place])] = torch.tensor(ids[place])
                mask[row, : len(ids[place])] = 1
            output = model.model(
                input_ids=padded.to(model.device), attention_mask=mask.to(model.device), output_hidden_states=True
            )
            for row, place in enumerate(places):
                of_text = []
                for layer in layers:
                    response = output.hidden_states[layer][row, starts[place] : len(ids[place])].float()
                    of_text += [response.mean(dim=0), response[-1]]
                states[place] = torch.stack(of_text).cpu().numpy()
            print(f"{begin + len(places)} of {len(order)} responses read", file=sys.stderr, flush=True)
    return np.stack(states)


def differences(base: ModelConfig, comparisons: Sequence[Comparison], kept: Path) -> Floats:
    """Return the states of A less those of B [comparison, 2 x depth, width]; ``kept`` holds them by texts."""
    keys = [comparison.content for comparison in comparisons]
    known: dict[str, Floats] = {}
    if kept.exists():
        with np.load(kept) as file:
            known = dict(zip(file["keys"].tolist(), file["differences"], strict=True))
    new = [comparison for comparison in comparisons if comparison.content not in known]
    if new:
        conversations = []
        for comparison in new:
            for response in (comparison.response_a, comparison.response_b):
                conversations.append(conversation(comparison.dialogue, response))
        states = states_of(base, conversations)
        for place, comparison in enumerate(new):
            known[comparison.content] = states[2 * place] - states[2 * place + 1]
        np.savez(kept, keys=np.array(list(known)), differences=np.stack(list(known.values())))
    return np.stack([known[key] for key in keys])


def margins(train: Floats, signs: NDArray[np.float64], groups: Sequence[object], held_out: Floats) -> Floats:
    """Return the log-odds of A being better in each held-out pair, nats, in the mean over regressions [pair].

    Args:
        train: differences of training pairs [pair, column, width].
        signs: 1 where A is better, -1 where B is [pair].
        groups: prompts of the training pairs, no one of which is in two folds.
        held_out: differences of the pairs that are measured on [pair, column, width].
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, GroupKFold

    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    of_row = np.array([numbers[group] for group in groups])
    total = np.zeros(len(held_out), dtype=np.float32)
    for column in range(train.shape[1]):
        scale = train[:, column].std(axis=0) + 1e-6
        features = train[:, column] / scale
        # Each pair stands there in both orders, so that no order is preferred.
        both = np.concatenate([features, -features])
        targets = np.concatenate([signs, -signs])
        folds = list(GroupKFold(FOLDS).split(both, groups=np.concatenate([of_row, of_row])))
        search = GridSearchCV(
            LogisticRegression(fit_intercept=False, max_iter=1000), {"C": STRENGTHS}, cv=folds, scoring="neg_log_loss"
        )
        weights = search.fit(both, targets).best_estimator_.coef_[0]
        total += (held_out[:, column] / scale) @ weights
    return total / train.shape[1]


def main() -> None:
    """Read what was not read yet, fit, and print the rows of the table."""
    parser = parser_of(__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("keep", type=Path)
    parser.add_argument("--test", action="store_true", help="the test rows, once")
    parser.add_argument("--apart", action="store_true", help="each regression by itself, too")
    parser.add_argument("--judges", type=Path, nargs="+", default=[], help="finished stages evaluate on the same rows")
    options, overrides = with_overrides(parser)
    options.keep.mkdir(parents=True, exist_ok=True)
    recipe = "tables/people_pairs_test" if options.test else "people_pairs"
    config = configured(f"recipe={recipe}", *overrides)
    base = config.train.base

    pairs = labelled_pairs(options.pairs)
    train = differences(base, pairs, options.keep / "train.npz")
    signs = np.array([1.0 if comparison.label == "A" else -1.0 for comparison in pairs])
    groups = conversation_starts([comparison.dialogue.user_texts for comparison in pairs])

    measured = Measured([*overrides, *(["--test"] if options.test else [])])
    held_out = differences(base, [*measured.by_id.values()], options.keep / f"{recipe.rpartition('/')[2]}.npz")
    ahead = dict(zip(measured.by_id, margins(train, signs, groups, held_out).tolist(), strict=True))

    print(f"{len(pairs)} labelled pairs")
    print("| on | n | decided | right of decided % | length-balanced % | strict % | less longer: right | balanced |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, ids in (measured.ids | {"together": [*measured.by_id]}).items():
        rated = measured.take(ids)
        right = right_by([ahead[one] for one in ids], rated.labels)
        print(f"{rated.row(name, right, None)} {rated.differences(right, rated.right_of_longer)} |")

    if options.apart:
        rated = measured.take([*measured.by_id])
        for column in range(train.shape[1]):
            alone = margins(train[:, [column]], signs, groups, held_out[:, [column]])
            right = right_by(alone.tolist(), rated.labels)
            name = f"{PLACES[column % len(PLACES)]}, {100 * DEPTHS[column // len(PLACES)]:.0f}% of the layers"
            print(f"{rated.row(name, right, None)} {rated.differences(right, rated.right_of_longer)} |")

    if options.judges:
        print("\n| judge, less the probe | on | right of decided | length-balanced |")
        print("| --- | --- | --- | --- |")
    for directory in options.judges:
        judged, by_method = rows_of(directory)
        for method, rows in by_method.items():
            right_of = dict(zip(judged, rows.right, strict=True))
            for name, ids in (measured.ids | {"together": judged}).items():
                rated = measured.take(ids)
                of_probe = right_by([ahead[one] for one in ids], rated.labels)
                of_judge = np.array([right_of[one] for one in ids])
                print(f"| {method} of {directory.name} | {name} | {rated.differences(of_judge, of_probe)} |")


if __name__ == "__main__":
    main()
