"""A judge as verl's reward: a response against the reference of its row (volcengine/verl, reward managers)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward.groups import SCORE
from judgetrain.extras.judge_reward.reward import JudgeReward

_one_at_a_time = Lock()


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    judge: str | None = None,
    **asked: Any,
) -> dict[str, float]:
    """What one response is worth, as verl's ``naive`` and ``dapo`` reward managers ask for it: see
    :func:`compute_scores`."""
    return compute_scores([data_source], [solution_str], [ground_truth], [extra_info], judge, **asked)[0]


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Mapping[str, Any] | None],
    judge: str | None = None,
    **asked: Any,
) -> list[dict[str, float]]:
    """What responses are worth, all of them one batch, as verl's reward manager ``batch`` asks for it.

    Each is a ``score``, its soft share of the comparison with the row's reference in [0, 1], and ``unreadable``, 1
    where the verdict cannot be read: the score is then 0.5, since verl takes no None. With ``reads="one"`` a response
    is scored by itself, by the row's ``extra_info["criteria"]`` where it has some, and needs no reference. The
    reference is the row's ``ground_truth`` where that is text, else ``extra_info["reference"]``; the prompt, which verl
    does not hand over, is ``extra_info["prompt"]`` (text or messages) or ``extra_info["question"]``.

    Args:
        data_sources: not looked at.
        solution_strs: the responses.
        ground_truths: the references.
        extra_infos: of each row.
        judge: its name. It is loaded once a process.
        asked: how it is loaded and asked, as in ``branches=3``; keys of ``custom_reward_function.reward_kwargs``.

    Raises:
        ConfigError: no judge is named.
        DataError: a row without prompt or reference.
    """
    if not judge:
        raise ConfigError("no judge: name one in custom_reward_function.reward_kwargs.judge")
    extras = [extra or {} for extra in extra_infos]
    references = [_reference(*row) for row in zip(ground_truths, extras, strict=True)]
    if asked.get("reads") != "one" and None in references:
        raise DataError("a row of verl without a reference: expected reward_model.ground_truth or extra_info.reference")
    given: list[Any] = [extra.get("criteria") for extra in extras]  # which may be arrays, as prompts may
    columns = {"reference": references, "criteria": [c.tolist() if hasattr(c, "tolist") else c for c in given]}
    with _one_at_a_time:  # verl's reward loop calls from several threads
        reward = _reward(judge, tuple(sorted(asked.items())))
        found = reward([_prompt(extra) for extra in extras], [str(said) for said in solution_strs], **columns)
    return [{"score": 0.5 if s is None else s, "unreadable": float(s is None)} for s in found]


@lru_cache(maxsize=1)
def _reward(judge: str, asked: tuple[tuple[str, Any], ...]) -> JudgeReward:
    how = dict(asked)
    alone = how.get("reads") == "one"
    return JudgeReward(
        judge, SCORE if alone else "anchor", rubrics="criteria" if alone else None, reference="reference", **how
    )


def _prompt(extra: Mapping[str, Any]) -> Any:
    for key in ("prompt", "question"):
        if (found := extra.get(key)) is not None:
            return found if isinstance(found, str) else [*found]  # Parquet gives arrays
    raise DataError("a row of verl without its prompt: put it into extra_info.prompt (text or messages)")


def _reference(truth: Any, extra: Mapping[str, Any]) -> str | None:
    found = truth if isinstance(truth, str) and truth else extra.get("reference")
    return found if isinstance(found, str) else None
