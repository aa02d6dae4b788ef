"""Which models of a run fit on which GPUs: ``stage=status`` says it before models are loaded or files are there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from judgetrain.engines.config import LocalEngineConfig, ModelConfig, VllmEngineConfig, engines_in
from judgetrain.engines.config import model_files as files_of
from judgetrain.errors import ConfigError
from judgetrain.judges.method import Method
from judgetrain.pipeline.graph import STAGES

if TYPE_CHECKING:
    from judgetrain.pipeline.run import Pipeline

WORKING = 0.85
"""Share of a GPU's memory that weights may take: the rest is for what is under way (a cache of keys and values)."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}
BITS = {"fp8": 1.0, "bitsandbytes": 0.6, "awq": 0.6, "gptq": 0.6, "awq_marlin": 0.6, "gptq_marlin": 0.6}
"""Bytes of a parameter under ``engine.quantization``, scales included."""
SIZE = r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z])"
"""A size in a model's name, as in ``7b``, ``1.5b``, ``8x7b``, ``270m``."""
TRAINED = 16
"""Bytes of a parameter that is trained with AdamW: weight, gradient and two moments in float32, or, under DeepSpeed, a
weight and a gradient in bfloat16 beside a float32 copy and moments."""


@dataclass(frozen=True)
class Gpus:
    """So many GPUs of so many GB each."""

    number: int
    gigabytes: float

    def __str__(self) -> str:
        return f"{self.number}x{self.gigabytes:g} GB"


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one model of a run takes.

    ``gigabytes``: of all GPUs together; None: nothing tells its size. ``gpus``: how many share it. ``fits``: on those
    that are there; None: it cannot be told.
    """

    what: str
    model: str
    gigabytes: float | None
    gpus: int
    fits: bool | None = None


def gpus_here(planned: str | None) -> Gpus | None:
    """The GPUs of ``status.gpus`` (``8x80``), else those of this machine, the smallest counting; None: there are none.

    Raises:
        ConfigError: it is not a number and GB.
    """
    if planned is not None:
        if not (said := re.fullmatch(r"(\d+)x(\d+(?:\.\d+)?)", planned)) or not int(said[1]):
            raise ConfigError(f"status.gpus={planned!r}: expected how many and the GB of each, as in 8x80")
        return Gpus(int(said[1]), float(said[2]))
    if shutil.which("nvidia-smi") is None:
        return None
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    found = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False).stdout.split()
    sizes = [float(size) * 2**20 / 1e9 for size in found if size.isdigit()]
    return Gpus(len(sizes), round(min(sizes), 1)) if sizes else None


def parameters(path: str) -> float | None:
    """About how many parameters a model has: by its weights on this machine, else by its name (``7B``, ``8x7B``)."""
    directory = files_of(path)
    if directory and Path(directory).expanduser().is_dir():
        config = Path(directory).expanduser() / "config.json"
        said = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
        size = BYTES.get(str(said.get("dtype") or said.get("torch_dtype")), 2)
        weights = sum(p.stat().st_size for p in Path(directory).expanduser().glob("*.safetensors"))
        return weights / size if weights else None
    if not (named := re.search(SIZE, path.rpartition("/")[2].lower())):
        return None
    experts, size_of_one = int(named[1] or 1), float(named[2]) * {"b": 1e9, "m": 1e6}[named[3]]
    # Experts share attention and embeddings: Mixtral 8x7B has 46.7 billion.
    return size_of_one * (experts if experts == 1 else experts * 0.84)


def show(pipeline: Pipeline) -> None:
    """Print what fits on the GPUs that are planned for or here; nothing where there are none."""
    if not (gpus := gpus_here(pipeline.config.status.gpus)):
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("key", "model", "GB", "GPUs", "fits"):
        table.add_column(column, overflow="fold")
    for need in needs(pipeline):
        size = "?" if need.gigabytes is None else f"{need.gigabytes:g}"
        fits = {True: "yes", False: "NO", None: "unknown"}[need.fits]
        table.add_row(need.what, need.model, size, str(need.gpus), fits)
    title = Text(f"models on {gpus}, by weights alone (and what training keeps beside them):")
    pipeline.console.plain([title, table, ""])


def needs(pipeline: Pipeline) -> list[Need]:
    """What the models of a run up to the evaluation take, each once, with whether it fits.

    Training under ZeRO-3 is split over ``train.processes`` where that is given, else over all GPUs.
    """
    gpus = gpus_here(pipeline.config.status.gpus)
    found = dict.fromkeys([*_sampling(pipeline), *_scoring(pipeline.config), *_training(pipeline, gpus)])
    return [_judged(need, gpus) for need in found]


def _judged(need: Need, gpus: Gpus | None) -> Need:
    fits = None
    if gpus and need.gigabytes is not None:
        fits = need.gpus <= gpus.number and need.gigabytes <= need.gpus * gpus.gigabytes * WORKING
    return Need(what=need.what, model=need.model, gigabytes=need.gigabytes, gpus=need.gpus, fits=fits)


def _sampling(pipeline: Pipeline) -> Iterator[Need]:
    config = pipeline.config
    for name in pipeline.needed("evaluate"):
        for key, engine in engines_in(STAGES[name].settings.of(config)):
            if isinstance(engine, LocalEngineConfig):
                base = config.train.base.path  # a judge has its base's size
                yield from _sampled(key, engine, engine.model.path or base)
    if isinstance(config.engine, LocalEngineConfig):
        for method in map(Method.parse, config.evaluate.methods):
            if method.is_directory:
                yield from _sampled("evaluate.methods", config.engine, method.target)


def _sampled(key: str, engine: LocalEngineConfig, model: str) -> Iterator[Need]:
    if not model:  # judges have models of their own, and no other is read
        return
    each: float = BYTES[engine.model.dtype]
    if isinstance(engine, VllmEngineConfig) and engine.quantization:
        each = BITS.get(engine.quantization, each)
    yield Need(what=key, model=model, gigabytes=_gigabytes(model, each), gpus=engine.gpus)


def _scoring(config: Any) -> Iterator[Need]:
    """The model whose probabilities scorers read, where any is asked for or one is named."""
    asked = any("scorer:" in method for method in config.evaluate.methods) or config.scorer.model.path
    if asked and config.scorer.engine is None:
        model: ModelConfig = config.scorer.model
        path = model.path or config.train.base.path
        yield Need(
            what="scorer.model", model=path, gigabytes=_gigabytes(path, BYTES[model.dtype]), gpus=config.scorer.gpus
        )


def _training(pipeline: Pipeline, gpus: Gpus | None) -> Iterator[Need]:
    settings, model = pipeline.config.train, pipeline.config.train.base.path
    there = gpus.number if gpus else 1
    processes = 1 if settings.distributed == "none" else settings.processes or there
    for name in (stage for stage in pipeline.needed("evaluate") if stage in ("initial", "sft", "dpo")):
        adapters = getattr(settings, name).lora
        each = TRAINED if not adapters.enabled else 0.6 if adapters.quantize == "4bit" else 2
        # ZeRO-2 keeps whole weights on every GPU; it is counted as if nothing were split, which is on the safe side.
        split = settings.distributed.startswith("zero3") and not adapters.enabled
        yield Need(what=f"train.{name}", model=model, gigabytes=_gigabytes(model, each), gpus=processes if split else 1)


def _gigabytes(model: str, each: float) -> float | None:
    count = parameters(model)
    return None if count is None else round(count * each / 1e9, 1)
