"""Which estimators there are: those that rooms name, each under its own name."""

from collections.abc import Sequence
from typing import ClassVar

import pytest

from judgetrain import rooms
from judgetrain.errors import ConfigError
from judgetrain.scorers.estimator import Batch, Estimator, Scores
from judgetrain.scorers.methods import BY_NAME, load_estimators


class Lengths(Estimator):
    """Scores responses by nothing but their length."""

    group = "lengths"
    names: ClassVar = {"characters": -1}

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        values = [float(len(sample.response)) for sample in batch.samples]
        return {"characters": Scores("characters", values, -1)}


class Again(Lengths):
    """Has a score that the core has already."""

    group = "again"
    names: ClassVar = {"sentprob": 1}


def test_a_room_s_estimator_stands_behind_the_core_s(monkeypatch: pytest.MonkeyPatch) -> None:
    every = rooms.scorers()
    monkeypatch.setattr(rooms, "scorers", lambda: {**every, "lengths": f"{__name__}:Lengths"})
    assert [estimator.group for estimator in load_estimators()] == [*every, "lengths"]
    assert "characters" not in BY_NAME


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("length", "Lengths", "has the group 'lengths': its room.yaml must call it so"),
        ("again", "Again", "judgetrain.scorers.glassbox:SinglePass and .*Again both have a score 'sentprob'"),
    ],
)
def test_an_estimator_that_hides_another_is_refused(
    name: str, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {**rooms.scorers(), name: f"{__name__}:{code}"}
    monkeypatch.setattr(rooms, "scorers", lambda: every)
    with pytest.raises(ConfigError, match=message):
        load_estimators()
