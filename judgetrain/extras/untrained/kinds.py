"""The kinds that need no training: ``prompted:``, ``rubric:``, ``fewshot:``, ``probe:`` and ``scorer:``."""

from judgetrain.judges.kinds.kind import Forms, Kind, Setup, Target, later

_ROOM = __name__.rpartition(".")[0]

PROMPTED = Kind(
    name="prompted",
    forms=Forms(evaluate="base, teacher or external after prompted:"),
    target=Target(model=True),
    check=later(f"{_ROOM}.prompted:check"),
    run=later(f"{_ROOM}.prompted:run"),
    # Sampled, since eight greedy judgments would be one judgment eight times.
    asked_as="{}+sampled+one",
)
"""A model asked by one criterion, eight times about every response."""

RUBRIC = Kind(
    name="rubric",
    forms=Forms(evaluate="rubric:N, rubric:N:MODEL"),
    target=Target(model=True, learns=True),
    check=later(f"{_ROOM}.learned:check_rubric"),
    run=later(f"{_ROOM}.learned:run_rubric"),
    asked_as="{}+one",
)
"""A rubric drawn from labelled pairs, then applied by the same model."""

FEWSHOT = Kind(
    name="fewshot",
    forms=Forms(evaluate="fewshot:N, fewshot:N:MODEL"),
    target=Target(model=True, learns=True),
    check=later(f"{_ROOM}.learned:check_fewshot"),
    run=later(f"{_ROOM}.learned:run_fewshot"),
    asked_as="pairwise:{}",
)
"""The pairwise judge, asked after the labelled pairs that are most like the comparison."""

PROBE = Kind(
    name="probe",
    forms=Forms(evaluate="probe:N, probe:N:MODEL"),
    target=Target(model=True, learns=True),
    check=later(f"{_ROOM}.probe:check"),
    run=later(f"{_ROOM}.probe:run"),
)
"""Regressions on the hidden states of a model, fitted to labelled pairs."""

SCORER = Kind(
    name="scorer",
    forms=Forms(evaluate="scorer:SCORER", unlabelled="scorer:NAME", python="scorer:NAME (with model=)"),
    check=later(f"{_ROOM}.scorers:check"),
    build=later(f"{_ROOM}.scorers:build"),
    setup=Setup(
        settings=("scorer",), options=later(f"{_ROOM}.scorers:options"), arguments=later(f"{_ROOM}.scorers:arguments")
    ),
    run=later(f"{_ROOM}.scorers:run"),
)
"""A model's own probabilities: the response with the better score wins."""
