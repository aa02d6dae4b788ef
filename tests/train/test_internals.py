"""The private parts of libraries that training uses are listed, and a version that moved one is refused in words."""

import pytest
from trl import DPOTrainer, GRPOTrainer
from trl.trainer import utils

from judgetrain.errors import TrainingError
from judgetrain.train.internals import (
    DPO,
    FUSED_HEAD,
    GRPO,
    RELIED_ON,
    Internal,
    OwnMicroBatches,
    TokenisedPairs,
    check_internals,
)


@pytest.mark.parametrize("part", RELIED_ON, ids=lambda part: f"{part.owner} {part.line}")
def test_the_installed_version_has_it(part: Internal) -> None:
    assert part.moved() is None, part.moved()


@pytest.mark.parametrize(
    ("mixin", "trainer", "parts"), [(TokenisedPairs, DPOTrainer, DPO), (OwnMicroBatches, GRPOTrainer, GRPO)]
)
def test_every_overridden_private_method_is_the_librarys_and_is_listed(
    mixin: type, trainer: type, parts: tuple[Internal, ...]
) -> None:
    overridden = [name for name in vars(mixin) if name.startswith("_") and not name.startswith("__")]
    assert overridden
    for name in overridden:
        assert callable(getattr(trainer, name, None)), f"{trainer.__name__} has no {name} to override"
        assert any(f"self.{name}(" in part.line for part in parts), f"{name} is not listed"


def test_a_version_that_moved_a_part_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def log(self: DPOTrainer, logs: dict[str, float], start_time: float | None = None) -> None:
        self.figures.clear()

    monkeypatch.setattr(DPOTrainer, "log", log)
    message = r"^trl \S+ no longer has `self\._metrics\[mode\]` in .*DPOTrainer\.log.*: install the version that"
    with pytest.raises(TrainingError, match=message):
        TokenisedPairs()
    check_internals(GRPO)


def test_a_function_or_a_module_that_is_gone_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, "add_fused_lm_head")
    assert "by which a CPU projects labelled tokens alone" in str(FUSED_HEAD.moved())
    assert "by which it trains" in str(Internal("trl.nowhere:Nothing", "x", "it trains").moved())
