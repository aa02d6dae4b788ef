"""The private parts of libraries are listed, stand in modules of their own, and one that has moved is said in words."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, GPT2Config
from trl import DPOTrainer, GRPOTrainer
from trl.trainer import utils

import judgetrain
from judgetrain.engines.internals import ATTENTION, STATIC_CACHE, Internal, attention_of, check_internals
from judgetrain.errors import TrainingError
from judgetrain.train.internals import DPO, FUSED_HEAD, GRPO, RELIED_ON, OwnMicroBatches, TokenisedPairs

PACKAGE = Path(judgetrain.__file__).parent


@pytest.mark.parametrize("part", [*RELIED_ON, ATTENTION, STATIC_CACHE], ids=lambda part: f"{part.owner} {part.line}")
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


def test_the_attention_that_a_model_computes_is_known() -> None:
    config = GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=8, n_positions=8)
    for name in ("eager", "sdpa"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation=name)
        assert attention_of(model) == name
    model.set_attn_implementation("eager")
    assert attention_of(model) == "eager"


OTHERS = {
    # OmegaConf has no public way to look at a node without resolving it.
    "judgetrain.pipeline.environment": {
        "_dereference_node",
        "_get_full_key",
        "_get_node",
        "_is_interpolation",
        "_is_missing",
        "_is_none",
        "_value",
    },
    # W&B links no artifact to a run that is offline.
    "judgetrain.extras.trackers.wandb_run": {"_log_artifact"},
    # Python's own, for which there is no public way before 3.14, or none at all.
    "judgetrain.artifacts.executor": {"_processes", "_sentinel"},
    "judgetrain.pipeline.cli": {"_run_exitfuncs", "_shutdown"},
}
"""Private names of other libraries, by the modules that may use them."""
PUBLIC = {"_asdict", "_exit"}
"""Underscored names that their libraries document: of named tuples, and of ``os``."""


def test_no_other_module_uses_a_private_name_of_a_library() -> None:
    sources = {}
    for path in PACKAGE.rglob("*.py"):
        sources[".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)] = ast.parse(path.read_text("utf-8"))
    package_names = {name for tree in sources.values() for name in _defined(tree)}
    for module, tree in sources.items():
        if module.endswith(".internals"):
            continue
        private = {name for name in _used(tree) if name.startswith("_") and not name.startswith("__")}
        assert private - package_names - PUBLIC <= OTHERS.get(module, set()), module


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module's own classes, functions and objects have."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def _used(tree: ast.Module) -> Iterator[str]:
    """Yield the attributes and the imported names that a module uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
            yield from str(node.module).split(".")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
            yield ast.unparse(node.args[1]).strip("'")
