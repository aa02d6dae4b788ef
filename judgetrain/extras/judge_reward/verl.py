"""Reward responses by a judge for verl, against the reference of the row (volcengine/verl, reward managers)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward.groups import SCORE
from judgetrain.extras.judge_reward.reward import JudgeReward
from judgetrain.messages import reference_text, scalar_text

_one_at_a_time = Lock()


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    judge: str | None = None,
    **options: Any,
) -> dict[str, float]:
    """Return what one response is worth, as verl's ``naive`` and ``dapo`` reward managers ask for it.

    See :func:`compute_scores`.
    """
    (score,) = compute_scores([data_source], [solution_str], [ground_truth], [extra_info], judge, **options)
    return score


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None],
    judge: str | None = None,
    **options: Any,
) -> list[dict[str, float]]:
    """Return what responses are worth, all of them one batch, as verl's reward manager ``batch`` asks for it.

    Each is a ``score``, its soft share of the comparison with the row's reference in [0, 1], and ``unreadable``, 1
    where the verdict cannot be read: the score is then 0.5, since verl takes no None. With ``reads="one"`` a response
    is scored by itself, by the row's ``extra_info["criteria"]`` where it has some, and needs no reference. The
    reference is the row's ``ground_truth`` where that is a text or a number, else ``extra_info["reference"]``; the
    prompt, which verl does not hand over, is ``extra_info["prompt"]`` (text or messages) or ``extra_info["question"]``.

    Args:
        data_sources: not looked at.
        solution_strs: the responses.
        ground_truths: the references.
        extra_infos: of each row.
        judge: its name. It is loaded once a process.
        options: how it is loaded and asked, as in ``branches=3``; keys of ``custom_reward_function.reward_kwargs``.

    Raises:
        ConfigError: no judge is named.
        DataError: a row without prompt or reference, or with a ground truth that is none and nothing in its place.
    """
    if not judge:
        raise ConfigError("no judge: name one in custom_reward_function.reward_kwargs.judge")
    extras = [extra or {} for extra in extra_infos]
    references = []
    for row, (truth, extra) in enumerate(zip(ground_truths, extras, strict=True)):
        references.append(_reference(truth, extra, row))
    # A judge of single responses needs none; compared with nothing, a response would get 0.5 whatever it says.
    if options.get("reads") != "one" and None in references:
        raise DataError("a row of verl without a reference: expected reward_model.ground_truth or extra_info.reference")
    # verl reads rows from Parquet, which gives lists as NumPy's arrays.
    criteria = [_plain(extra.get("criteria")) for extra in extras]
    # verl's reward loop calls from several threads, and a judge answers one.
    with _one_at_a_time:
        # As a sorted tuple, which a cache can look up.
        reward = reward_of(judge, tuple(sorted(options.items())))
        prompts = [_prompt(extra) for extra in extras]
        responses = [str(response) for response in solution_strs]
        values = reward(prompts, responses, reference=references, criteria=criteria)
    scores = []
    for value in values:
        if value is None:
            scores.append({"score": 0.5, "unreadable": 1.0})
        else:
            scores.append({"score": value, "unreadable": 0.0})
    return scores


@lru_cache(maxsize=1)
def reward_of(judge: str, sorted_options: tuple[tuple[str, Any], ...]) -> JudgeReward:
    """Return the reward function of a judge, loaded once; ``sorted_options`` holds its options by name."""
    options = dict(sorted_options)
    if options.get("reads") == "one":
        return JudgeReward(judge, SCORE, rubrics="criteria", reference="reference", **options)
    return JudgeReward(judge, "anchor", reference="reference", **options)


def _plain(value: Any) -> Any:
    """Return a list for an array, which Parquet makes of lists, and any other value as it is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def _prompt(extra: Mapping[str, Any]) -> Any:
    """Return a row's prompt, text or messages (DataError: it has none)."""
    for key in ("prompt", "question"):
        prompt = extra.get(key)
        if isinstance(prompt, str):
            return prompt
        if prompt is not None:
            # Parquet gives arrays.
            return [*prompt]
    raise DataError("a row of verl without its prompt: put it into extra_info.prompt (text or messages)")


def _reference(truth: Any, extra: Mapping[str, Any], row: int) -> str | None:
    """Return a row's reference: its ground truth where that is a text or number, else that of its extras; or None.

    Args:
        truth: the row's ground truth. Rules check responses by it, so that it may be anything.
        extra: the row's extras.
        row: its number, for messages.

    Raises:
        DataError: neither is an answer, and the extras do not say that there is none.
    """
    # A number is the text that a table holds of it (docs/rules.md).
    answer = scalar_text(truth)
    if isinstance(answer, str) and answer.strip():
        return answer
    # A ground truth for a rule, such as a list of test cases, is no answer that a judge could be shown.
    if answer not in ("", None) and "reference" not in extra:
        raise DataError(
            f"row {row} of verl, reward_model.ground_truth: {truth!r:.80} is no reference answer; "
            "give one in extra_info.reference, or null there if the row has none"
        )
    try:
        return reference_text(extra.get("reference"))
    except DataError as error:
        raise DataError(f"row {row} of verl, extra_info.reference: {error}") from error
