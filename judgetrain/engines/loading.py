"""Load causal language models and tokenizers, from a directory, the Hub, a GGUF file or the shipped base.

Engines and training use these same functions, so that a model is prompted as it was trained.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import read_json, settle, write_text_atomic
from judgetrain.artifacts.fingerprint import ADAPTERS, BASE
from judgetrain.engines.config import WORLD_BASE, ModelConfig, model_commit
from judgetrain.engines.hub import looks_local
from judgetrain.errors import EngineError
from judgetrain.keys import PACKAGE

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)
say_once = cache(log.info)

DEFAULT_CHAT_TEMPLATE = Path(__file__).parent / "default_chat_template.jinja"
"""The template given to a tokenizer that has none; documented in its own first comment."""

KEPT = 1e9
"""Bytes of a GGUF file up to which what it unpacks to is kept, in ``judgetrain`` beside the Hub's cache (``HF_HOME``):
some five times as many. To unpack takes most of a minute, to read what is kept a few seconds."""

CLOCK = (
    "{%- macro strftime_now(format) -%}{{ format | replace('%d', '26') | replace('%b', 'Jul') | replace('%B', 'July')"
    " | replace('%m', '07') | replace('%Y', '2024') | replace('%y', '24') | replace('%A', 'Friday') }}{%- endmacro %}"
)
"""Put before a chat template that writes today's date: a judge is asked, and saved, as if it were always that day."""


def resolve_path(config: ModelConfig) -> tuple[str, str | None]:
    """Where a model is: ``(directory or Hub id, GGUF file name or None)`` (EngineError: the path does not exist, or
    the package is missing or has no ``assemble()``).

    ``config.path`` is a local directory, a local ``.gguf`` file, a Hub id, ``world`` (the shipped base) or
    ``package:NAME`` (an installed PyPI package whose ``assemble()`` gives the path of a GGUF file).
    """
    if not (path := config.path):
        raise EngineError("model.path is empty: give a directory, a Hub id, 'world' or 'package:NAME'")
    if path == "world":
        return str(WORLD_BASE), None
    if path.startswith(PACKAGE):
        file = _assemble(path.removeprefix(PACKAGE))
        return str(file.parent), file.name
    local = Path(path).expanduser()
    if local.is_file() and local.suffix == ".gguf":
        return str(local.parent), local.name
    if not (local.exists() or looks_local(path)):
        return path, None
    if not local.is_dir():
        raise EngineError(f"model.path={path}: {local} is not a directory; give a model directory or a Hub id")
    return str(local), None


def revision_of(config: ModelConfig) -> str:
    """At which revision a model of the Hub is loaded: the commit that fingerprints have, where it is known."""
    return model_commit(config.path, config.revision) or config.revision or "main"


_TOKENIZERS: dict[frozenset[tuple[int, int, int]], tuple[PreTrainedTokenizerBase, int]] = {}
"""The last one that was loaded and its tokens, by the files of its directory: to read Gemma's takes four seconds."""


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """The tokenizer, padding on the left, with a pad token and a chat template (EngineError: names the path and the
    remedy).

    A missing pad token becomes the end token (or the unknown token): padding is always masked. A missing chat
    template becomes :data:`DEFAULT_CHAT_TEMPLATE`, which is logged.
    """
    from transformers import AutoTokenizer

    path, gguf_file = _unpacked(config, "tokenizer", AutoTokenizer.from_pretrained)
    stats = [] if gguf_file or config.trust_remote_code else [f.stat() for f in Path(path).glob("*") if f.exists()]
    files = frozenset((each.st_ino, each.st_size, each.st_mtime_ns) for each in stats)
    if files in _TOKENIZERS and len(kept := _TOKENIZERS[files][0]) == _TOKENIZERS[files][1]:  # nobody added tokens
        return _copied(kept)
    tokenizer: PreTrainedTokenizerBase = _from_pretrained(AutoTokenizer.from_pretrained, config, path, gguf_file)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token_id is None:
            raise EngineError(f"the tokenizer of {config.path} has no pad, eos or unk token; add one to its files")
    if not tokenizer.chat_template:
        say_once("%s has no chat template, as base models have none: it gets a plain one", config.path)
        tokenizer.chat_template = DEFAULT_CHAT_TEMPLATE.read_text(encoding="utf-8")
    template = tokenizer.chat_template
    if isinstance(template, str) and "strftime_now" in template and not template.startswith(CLOCK):
        tokenizer.chat_template = CLOCK + template
    if files:
        _TOKENIZERS.clear()
        _TOKENIZERS[files] = _copied(tokenizer), len(tokenizer)
    return tokenizer


def _copied(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """One that may be set otherwise; what splits texts, whose copy would take as long as reading it, is shared."""
    made = copy(tokenizer)
    vars(made).update({k: copy(v) for k, v in vars(made).items() if isinstance(v, (dict, list))})
    return made


def adapted(config: ModelConfig, above: frozenset[Path] = frozenset()) -> ModelConfig | None:
    """The base, at its revision, that a directory of adapters says it is for; None where the path holds none.

    A base may be adapters of another, and so on to a model (EngineError: to none; ``above``: those looked at so far).
    """
    path, gguf_file = resolve_path(config)
    if gguf_file or not (Path(path) / ADAPTERS).is_file():
        return None
    said = json.loads((Path(path) / ADAPTERS).read_text(encoding="utf-8"))
    base = said.get(BASE)
    above |= {Path(path).resolve()}
    if not (isinstance(base, str) and base) or Path(base).expanduser().resolve() in above:
        told = f"{path}: {ADAPTERS} names no {BASE} but itself, or adapters that are for it"
        raise EngineError(f"{told}: write the path of the base model into it")
    found = replace(config, path=base, revision=said.get("revision"))
    adapted(found, above)
    return found


def load_config(config: ModelConfig, path: str) -> PretrainedConfig:
    """The model's own configuration, from its directory or the Hub (EngineError: the path and the remedy)."""
    from transformers import AutoConfig

    found: PretrainedConfig = _from_pretrained(AutoConfig.from_pretrained, config, path, None)
    return found


def end_token_ids(config: ModelConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The token ids on which generation with this model stops, read off its files: its configuration's for generation,
    else its own, and the tokenizer's."""
    from transformers import GenerationConfig

    if base := adapted(config):  # whose answers end as the base's do
        return end_token_ids(base, tokenizer)
    path, gguf_file = resolve_path(config)
    found = [tokenizer.eos_token_id]
    if not gguf_file:
        with suppress(OSError, ValueError, KeyError, EngineError):  # loading the model says what is wrong with files
            try:
                found.append(GenerationConfig.from_pretrained(path, revision=revision_of(config)).eos_token_id)
            except OSError:
                found.append(load_config(config, path).get_text_config().eos_token_id)
    return flat_ids(found)


def flat_ids(found: Iterable[Any]) -> frozenset[int]:
    """The token ids that settings name, each an id, a list of ids or None."""
    lists = (each if isinstance(each, (list, tuple)) else [each] for each in found)
    return frozenset(token for each in lists for token in each if token is not None)


def load_model(
    config: ModelConfig, device: str | torch.device | None = None, *, four_bit: bool = False
) -> PreTrainedModel:
    """The model in evaluation mode, as ordinary weights that ``save_pretrained`` can write (EngineError: names the
    path and the remedy).

    GGUF is unpacked, small files once and for all (:data:`KEPT`); adapters are merged into their base, which may be
    adapters of another.

    ``device`` None leaves the weights where Transformers puts them (the CPU, or partitioned under ZeRO-3), as
    trainers want it; on a GPU ``config.gpus`` of them share out the layers. ``config.dtype`` "auto" is bfloat16 on a
    GPU that has it and float32 otherwise. ``four_bit``: for training adapters (QLoRA), on this process's GPU where it
    has one; such weights are no ordinary ones.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.import_utils import is_flash_attn_2_available
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # the console's own is the one that there is
    if torch.cuda.is_available():
        # PyTorch prefers cuDNN's attention on Hopper and Blackwell, which makes a plan for every shape that it has not
        # seen: for each token that is decoded, and most batches that are trained on.
        torch.backends.cuda.enable_cudnn_sdp(False)
    path, gguf_file = resolve_path(config)
    split = config.gpus > 1 and str(device).startswith("cuda")
    base = adapted(config)
    if four_bit and (gguf_file or base is not None):
        what = "GGUF weights" if gguf_file else "adapters"
        raise EngineError(f"{config.path} holds {what}, which are not rounded to 4 bits: leave out four_bit")
    if base is not None:
        return _merged(load_model(base, device), config, path)
    if gguf_file:
        path, gguf_file = _unpacked(config, "weights", _dequantized)
    check_weights(Path(path))
    options: dict[str, Any] = {"dtype": resolve_dtype(config.dtype)}
    if config.attn_implementation is not None:
        options["attn_implementation"] = config.attn_implementation
    elif is_flash_attn_2_available() and not gguf_file and "float32" not in str(options["dtype"]):
        options["attn_implementation"] = "flash_attention_2"
    if split:
        options |= _split(config)
    if four_bit:
        options |= _four_bit(options["dtype"])
    model: PreTrainedModel
    if gguf_file:
        model = _from_pretrained(_dequantized, config, path, gguf_file, **options)
    else:
        options |= {"output_loading_info": True, "use_safetensors": True}  # a pickle runs code
        model, told = _from_pretrained(AutoModelForCausalLM.from_pretrained, config, path, None, **options)
        _check_layers(config, told)
    model = model.train(False)
    return model if device is None or split or four_bit else model.to(device)  # type: ignore[arg-type]


def _dequantized(path: str, **options: Any) -> PreTrainedModel:
    """The model of a GGUF file as ordinary weights; the loader's marks would make ``save_pretrained`` refuse."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.quantization_config import GgufConfig

    quantization = GgufConfig(dequantize=True)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(path, quantization_config=quantization, **options)
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        if name in vars(model):
            delattr(model, name)
    for config in {id(c): c for c in (model.config, model.config.get_text_config())}.values():
        if hasattr(config, "quantization_config"):
            del config.quantization_config
    return model


def _unpacked(config: ModelConfig, part: str, load: Callable[..., Any]) -> tuple[str, str | None]:
    """As :func:`resolve_path`; of a small GGUF file the directory in which a part of it lies as Transformers writes it.

    It is made where there is none yet: whole or not at all, by one process, and none of several that train together.
    """
    import transformers
    from filelock import FileLock
    from huggingface_hub import constants
    from safetensors import SafetensorError

    path, gguf_file = resolve_path(config)
    if not gguf_file or (file := Path(path, gguf_file)).stat().st_size > KEPT:
        return path, gguf_file
    place = Path(constants.HF_HOME, "judgetrain", f"{file.stem}-{_digest(file)}-{transformers.__version__}", part)
    try:
        if not place.is_dir() and os.environ.get("WORLD_SIZE", "1") == "1":
            place.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{place}.lock"):
                if not place.is_dir():
                    new = place.with_suffix(".new")
                    shutil.rmtree(new, ignore_errors=True)  # of a killed process
                    _from_pretrained(load, config, path, gguf_file).save_pretrained(new)
                    settle(new)
                    new.rename(place)
    except (OSError, SafetensorError):  # no place for it
        shutil.rmtree(place.with_suffix(".new"), ignore_errors=True)
        log.info("%s is unpacked each time: %s cannot be written", config.path, place)
    return (str(place), None) if place.is_dir() else (path, gguf_file)


def _four_bit(dtype: torch.dtype) -> dict[str, Any]:
    """How QLoRA's frozen base is loaded (2305.14314, section 3), rounded where it will lie."""
    import torch
    from transformers import BitsAndBytesConfig

    nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": dtype}
    where: int | str = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
    return {"quantization_config": BitsAndBytesConfig(load_in_4bit=True, **nf4), "device_map": {"": where}}


def _merged(base: PreTrainedModel, config: ModelConfig, path: str) -> PreTrainedModel:
    """The base with the adapters of a directory merged into it; resized where they bring embeddings of more tokens."""
    from peft import PeftModel
    from safetensors import safe_open

    if not (file := Path(path) / "adapter_model.safetensors").is_file():
        raise EngineError(f"{path} has no adapter_model.safetensors: adapters in a pickle are not loaded; convert them")
    with _explained(config, path):
        name = next(name for name, module in base.named_modules() if module is base.get_input_embeddings())
        with safe_open(file, "pt") as tensors:
            if (own := f"base_model.model.{name}.weight") in tensors.keys():  # noqa: SIM118
                base.resize_token_embeddings(tensors.get_slice(own).get_shape()[0], mean_resizing=False)
        merged: PreTrainedModel = PeftModel.from_pretrained(base, path).merge_and_unload()
        return merged.requires_grad_(True).train(False)


def _check_layers(config: ModelConfig, told: Mapping[str, Any]) -> None:
    """Refuse a model whose layers and weights do not belong together: what is missing would be random.

    Weights beside the layers, which a text model has no use for, are another matter.
    """
    missing = sorted(told["missing_keys"])
    more = sorted(name for name in told["unexpected_keys"] if re.search(r"\.(layers|h|blocks)\.\d+\.", name))
    if found := missing or more:
        what = f"{len(found)} weights are {'missing' if missing else 'of layers it does not have'}"
        raise EngineError(f"{config.path}: {what}, as {found[0]}: config.json is another model's, or a file is missing")


def _split(config: ModelConfig) -> dict[str, Any]:
    """How Transformers shares a model's layers out over the first GPUs, and nothing but these."""
    import torch

    if (there := torch.cuda.device_count()) < config.gpus:
        raise EngineError(f"model.gpus={config.gpus}: {config.path} needs so many GPUs, and there are {there} here")
    free = {index: torch.cuda.mem_get_info(index)[0] for index in range(config.gpus)}
    return {"device_map": "balanced", "max_memory": free}


def best_device() -> str:
    """``cuda`` where there is a GPU, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_dtype(name: str) -> torch.dtype:
    """The torch dtype of a ``ModelConfig.dtype``: "auto" is bfloat16 on a GPU that has it, float32 otherwise."""
    import torch

    if name == "auto":
        name = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def own_context(config: ModelConfig) -> int:
    """The most tokens that a model's own configuration allows, read before its weights are; of GGUF files any."""
    if base := adapted(config):
        return own_context(base)
    path, gguf_file = resolve_path(config)
    return 1 << 30 if gguf_file else context_length(load_config(config, path))


def context_length(config: PretrainedConfig, limit: int | None = None) -> int:
    """The longest prompt plus completion, tokens: the model's own limit or ``limit``, whichever is smaller."""
    text = config.get_text_config()
    own = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or 1 << 30
    return int(min(own, limit or own))


def _from_pretrained(
    load: Callable[..., Any], config: ModelConfig, path: str, gguf_file: str | None, **options: Any
) -> Any:
    """Call a ``from_pretrained``; its failures become one sentence with a remedy."""
    if gguf_file:
        options["gguf_file"] = gguf_file
        if importlib.util.find_spec("gguf") is None:
            raise EngineError(f"{config.path} has GGUF weights, which need the package gguf: pip install gguf")
    with _explained(config, path):
        return load(path, revision=revision_of(config), trust_remote_code=config.trust_remote_code, **options)


@contextmanager
def _explained(config: ModelConfig, path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise EngineError(_explain(error, config, path)) from error
    except Exception as error:
        from safetensors import SafetensorError

        # So do safetensors, tokenizers (which raise plain ones) and PyTorch say of a broken file.
        if not (isinstance(error, SafetensorError) or type(error) is Exception or "size mismatch" in str(error)):
            raise
        why = " ".join(str(error).split())[:200]
        raise EngineError(f"a file of {path} is cut or damaged ({why}): copy or download it again") from error


def _explain(error: Exception, config: ModelConfig, path: str) -> str:
    text = " ".join(str(error).split())
    if "trust_remote_code" in text and not config.trust_remote_code:
        return f"{config.path} needs code from its repository: read that code, then set model.trust_remote_code=true"
    if isinstance(error, ImportError):
        return f"cannot load {config.path}: {text}"
    if not Path(path).exists():
        why = "no network, no access or no such model"
        return f"cannot reach {path} on the Hugging Face Hub ({why}); give a local directory"
    if Path(path).is_dir() and any(Path(path).glob("*.bin")) and not any(Path(path).glob("*.safetensors")):
        return f"{config.path} holds its weights in a pickle, which is never loaded: convert them to safetensors"
    return f"cannot load a model from {config.path}: {text[:300]}"


@cache
def _assemble(name: str) -> Path:
    try:
        module = importlib.import_module(name.replace("-", "_"))
    except ImportError as error:
        raise EngineError(f"model.path=package:{name}: the package is not installed; pip install {name}") from error
    if not hasattr(module, "assemble"):
        raise EngineError(f"model.path=package:{name}: the package has no assemble() that gives a GGUF file")
    try:
        return Path(module.assemble())
    except FileExistsError:  # a file cut short by a killed run
        return Path(module.assemble(overwrite=True))


DIGESTS = "weights.json"
"""The file of digests (XXH3, 128 bits: a gigabyte takes a quarter of a second)."""


def note_weights(directory: Path) -> None:
    """Write the digests of a directory's safetensors beside them."""
    digests = {file.name: _digest(file) for file in sorted(directory.glob("*.safetensors"))}
    write_text_atomic(directory / DIGESTS, json.dumps(digests, indent=1))


def check_weights(directory: Path) -> None:
    """Refuse (EngineError) weights of a directory with digests that are missing, or not what was written."""
    if not (directory / DIGESTS).is_file():
        return
    found = read_json(directory / DIGESTS)
    if not isinstance(found, dict):
        raise EngineError(f"{directory / DIGESTS} is damaged: copy the judge again")
    for name, digest in found.items():
        if not (directory / name).is_file() or _digest(directory / name) != digest:
            told = f"{directory / name} is missing or holds other bytes than training wrote"
            raise EngineError(f"{told}: copy the judge again (or remove {DIGESTS}, if you changed the weights)")


def _digest(file: Path) -> str:
    import xxhash

    with file.open("rb") as opened:
        return hashlib.file_digest(opened, xxhash.xxh3_128).hexdigest()
