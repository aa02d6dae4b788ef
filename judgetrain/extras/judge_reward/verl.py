"""A judge as verl's reward: a response against the reference of its row (volcengine/verl, reward managers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

from judgetrain.data.rubrics import rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward.groups import Group, scalars
from judgetrain.judges.base import Judge
from judgetrain.rubrics import Rubric
from judgetrain.schema import Candidates

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
    if judge and asked.get("reads") == "one":
        group_of = [
            Candidates.of(_prompt(extra), [str(said)], _known(truth, extra), _rubric(extra))
            for said, truth, extra in zip(solution_strs, ground_truths, extra_infos, strict=True)
        ]
        with _one_at_a_time:
            scored = _judge(judge, tuple(sorted(asked.items()))).score_all(group_of)
        values = [score.value for (score,) in scored]
        return [{"score": 0.5 if v is None else v, "unreadable": float(v is None)} for v in values]
    rows = zip(solution_strs, ground_truths, extra_infos, strict=True)
    groups = [Group(_prompt(extra), [str(said)], _reference(truth, extra)) for said, truth, extra in rows]
    if not judge:
        raise ConfigError("no judge: name one in custom_reward_function.reward_kwargs.judge")
    with _one_at_a_time:  # verl's reward loop calls from several threads
        found = scalars(groups, _judge(judge, tuple(sorted(asked.items()))).compare_all, "anchor")
    return [{"score": 0.5 if s is None else s, "unreadable": float(s is None)} for (s,) in found]


@lru_cache(maxsize=1)
def _judge(name: str, asked: tuple[tuple[str, Any], ...]) -> Judge:
    from judgetrain.judges import load_judge

    return load_judge(name, **dict(asked))


def _prompt(extra: Mapping[str, Any] | None) -> Any:
    for key in ("prompt", "question"):
        if extra is not None and extra.get(key) is not None:
            return extra[key]
    raise DataError("a row of verl without its prompt: put it into extra_info.prompt (text or messages)")


def _rubric(extra: Mapping[str, Any] | None) -> Rubric | None:
    raw = (extra or {}).get("criteria")
    return None if raw is None or raw == "" else rubric_of(raw)


def _known(truth: Any, extra: Mapping[str, Any] | None) -> str | None:
    found = truth if isinstance(truth, str) and truth else (extra or {}).get("reference")
    return found if isinstance(found, str) else None


def _reference(truth: Any, extra: Mapping[str, Any] | None) -> str:
    found = _known(truth, extra)
    if found is None:
        raise DataError(
            "a row of verl without a reference answer: expected text as reward_model.ground_truth, or as "
            "extra_info.reference"
        )
    return found
