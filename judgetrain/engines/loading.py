"""Load causal language models and tokenizers, from a directory, the Hub, a GGUF file or the shipped base.

Engines and training use these same functions, so that a model is prompted as it was trained.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.fingerprint import ADAPTERS, BASE
from judgetrain.artifacts.heartbeat import doing
from judgetrain.engines.adapters import check_method, merge, settings_of
from judgetrain.engines.chat_templates import default_template
from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.digests import check_weights
from judgetrain.engines.gguf import dequantized, unpacked
from judgetrain.engines.hub import looks_local
from judgetrain.engines.pretrained import ODD_VALUE, explained, from_pretrained, revision_of
from judgetrain.engines.sizes import check_sizes
from judgetrain.engines.template_check import check_template
from judgetrain.errors import EngineError
from judgetrain.keys import PACKAGE

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)
say_once = cache(log.info)
"""Log a message the first time that it is logged with the same arguments."""

DEFAULT_CHAT_TEMPLATE = Path(__file__).parent / "default_chat_template.jinja"
"""The template for tokenizers that have none; the comment at its top describes it."""

CLOCK = (
    "{%- macro strftime_now(format) -%}{{ format | replace('%d', '26') | replace('%b', 'Jul') | replace('%B', 'July')"
    " | replace('%m', '07') | replace('%Y', '2024') | replace('%y', '24') | replace('%A', 'Friday') }}{%- endmacro %}"
)
"""Stands before a chat template that writes today's date, so that prompts are the same on every day."""

UNUSUAL = "Is it? naïve 東京 \ue000"
"""A text of which most tokenizers that know whole words know few."""
NO_LIMIT = 1 << 30
"""The context, in tokens, of a model that names no limit."""


def resolve_path(config: ModelConfig) -> tuple[str, str | None]:
    """Return where a model is: its directory or Hub id, and the name of its GGUF file or None.

    ``config.path`` is a local directory, a local ``.gguf`` file, a Hub id, ``world`` (the shipped base) or
    ``package:NAME`` (an installed PyPI package whose ``assemble()`` returns the path of a GGUF file).

    Raises:
        EngineError: the path does not exist, or the package is missing or has no ``assemble()``.
    """
    path = config.path
    if not path:
        raise EngineError("model.path is empty: give a directory, a Hub id, 'world' or 'package:NAME'")
    if path == "world":
        return str(WORLD_BASE), None
    if path.startswith(PACKAGE):
        file = _assemble(path.removeprefix(PACKAGE))
        return str(file.parent), file.name

    # A path that exists is local, also one that looks like a Hub id.
    local = Path(path).expanduser()
    if local.is_file() and local.suffix == ".gguf":
        return str(local.parent), local.name
    if not local.exists() and not looks_local(path):
        return path, None
    if not local.is_dir():
        raise EngineError(f"model.path={path}: {local} is not a directory; give a model directory or a Hub id")
    return str(local), None


@cache
def _assemble(name: str) -> Path:
    """Return the GGUF file that an installed PyPI package puts together from its parts."""
    try:
        module = importlib.import_module(name.replace("-", "_"))
    except ImportError as error:
        raise EngineError(f"model.path=package:{name}: the package is not installed; pip install {name}") from error
    if not hasattr(module, "assemble"):
        raise EngineError(f"model.path=package:{name}: the package has no assemble() that gives a GGUF file")
    try:
        return Path(module.assemble())
    except FileExistsError:
        # A killed run has left the file cut short.
        return Path(module.assemble(overwrite=True))


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer, padding on the left, with a pad token and a chat template.

    A missing pad token becomes the end token (or the unknown token), since padding is always masked. A missing chat
    template becomes :data:`DEFAULT_CHAT_TEMPLATE`, which is logged. Of several ones it has one alone
    (:func:`~judgetrain.engines.chat_templates.default_template`).

    Raises:
        EngineError: the tokenizer cannot be loaded, none of its chat templates is the default, or files hold templates
            that differ; names the path and the remedy.
    """
    from transformers import AutoTokenizer

    path, gguf_file = resolve_path(config)
    # Of a small GGUF file, the directory of its unpacked tokenizer, which loads in a fraction of the time.
    path, gguf_file = unpacked(config, path, gguf_file, "tokenizer", AutoTokenizer.from_pretrained)
    stamps: Stamps = frozenset()
    # A tokenizer with code of its own may read other files, so that these would not tell of a change.
    if not gguf_file and not config.trust_remote_code:
        stamps = _stamps_of(Path(path))
    remembered = _tokenizer_from_memory(stamps)
    if remembered is not None:
        return remembered

    tokenizer: PreTrainedTokenizerBase = from_pretrained(AutoTokenizer.from_pretrained, config, path, gguf_file)
    # Some fail over a text that they have no token for, and say so only then.
    with explained(config, path):
        tokenizer(UNUSUAL, add_special_tokens=False)
    # Prompts of a batch have to end together, where generation begins.
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token_id is None:
            raise EngineError(f"the tokenizer of {config.path} has no pad, eos or unk token; add one to its files")

    # A GGUF file holds its own, and no others stand beside it.
    if not gguf_file:
        tokenizer.chat_template, remark = default_template(tokenizer, config, path)
        if remark:
            say_once("%s", remark)
    # Base models are trained on text without turns.
    if not tokenizer.chat_template:
        say_once("%s has no chat template, as base models have none: it gets a plain one", config.path)
        tokenizer.chat_template = DEFAULT_CHAT_TEMPLATE.read_text(encoding="utf-8")
    template = tokenizer.chat_template
    # The shipped ones are known, and trying a template takes most of a second.
    if template not in _shipped_templates():
        check_template(template, tokenizer.special_tokens_map, config.path)
    if "strftime_now" in template and not template.startswith(CLOCK):
        tokenizer.chat_template = CLOCK + template
    if not isinstance(tokenizer.model_max_length, (int, float)):
        raise EngineError(
            f"tokenizer_config.json of {config.path}: model_max_length is {tokenizer.model_max_length!r}, and a number "
            f"is expected"
        )

    if stamps:
        # One is enough: a stage loads the same tokenizer for its model, its checks and its training.
        _TOKENIZERS.clear()
        _TOKENIZERS[stamps] = (_copied(tokenizer), len(tokenizer))
    return tokenizer


@cache
def _shipped_templates() -> frozenset[str]:
    """Return the chat templates that come with the package."""
    files = (DEFAULT_CHAT_TEMPLATE, WORLD_BASE / "chat_template.jinja")
    return frozenset(file.read_text(encoding="utf-8") for file in files)


Stamps = frozenset[tuple[int, int, int]]
"""The inode, size and modification time (ns) of every file in a directory."""

_TOKENIZERS: dict[Stamps, tuple[PreTrainedTokenizerBase, int]] = {}
"""The tokenizer that was loaded last and its number of tokens, by its files. Gemma's takes four seconds to read."""


def _stamps_of(directory: Path) -> Stamps:
    """Return the stamps of a directory's files; empty for an id on the Hub, which is no directory."""
    stamps = []
    # Named chat templates stand in a folder of their own.
    for file in (*directory.glob("*"), *directory.glob("additional_chat_templates/*")):
        if file.exists():
            stat = file.stat()
            stamps.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return frozenset(stamps)


def _tokenizer_from_memory(stamps: Stamps) -> PreTrainedTokenizerBase | None:
    """Return a copy of the tokenizer that was loaded last if it is of these files, or None."""
    if stamps not in _TOKENIZERS:
        return None
    tokenizer, number_of_tokens = _TOKENIZERS[stamps]
    # Copies share the backend, so that a token added to one of them is in all.
    if len(tokenizer) != number_of_tokens:
        return None
    return _copied(tokenizer)


def _copied(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return a copy whose settings can be changed; the backend is shared, since copying it is as slow as loading."""
    duplicate = copy(tokenizer)
    for name, value in list(vars(duplicate).items()):
        # Settings in mappings and lists would otherwise be changed in the original, too.
        if isinstance(value, (dict, list)):
            vars(duplicate)[name] = copy(value)
    return duplicate


def adapted(config: ModelConfig, above: frozenset[Path] = frozenset()) -> ModelConfig | None:
    """Return the base model, at its revision, of a directory of adapters; None where the path holds no adapters.

    A base may be a directory of adapters too, and so on down to a model.

    Args:
        config: the model, which may be adapters.
        above: directories of adapters that led to this one as their base.

    Raises:
        EngineError: adapters name no base, or are based on each other.
    """
    path, gguf_file = resolve_path(config)
    if gguf_file or not (Path(path) / ADAPTERS).is_file():
        return None

    content = read_json(Path(path) / ADAPTERS)
    if not isinstance(content, dict):
        raise EngineError(f"{path}: {ADAPTERS} is not a JSON object: copy the adapters again")
    base_path = content.get(BASE)
    above = above | {Path(path).resolve()}
    if not isinstance(base_path, str) or not base_path:
        raise EngineError(f"{path}: {ADAPTERS} names no {BASE}: write the path of the base model into it")
    if Path(base_path).expanduser().resolve() in above:
        raise EngineError(
            f"{path}: {ADAPTERS} names no {BASE} but itself, or adapters that are based on it: write the path of the "
            f"base model into it"
        )

    base = replace(config, path=base_path, revision=content.get("revision"))
    # Adapters below this base are checked too, so that a circle is refused before anything loads.
    adapted(base, above)
    return base


def load_config(config: ModelConfig, path: str) -> PretrainedConfig:
    """Return the model's own configuration, from its directory or the Hub.

    Raises:
        EngineError: it cannot be loaded, or holds numbers that no model has; names the path and the remedy.
    """
    from transformers import AutoConfig

    model_config: PretrainedConfig = from_pretrained(AutoConfig.from_pretrained, config, path, None)
    check_sizes(config.path, model_config.get_text_config(), Path(path))
    return model_config


def end_token_ids(config: ModelConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the token ids on which generation with this model stops.

    They are the tokenizer's end token, and those that the model's configuration for generation names, else its own
    configuration.

    Raises:
        EngineError: one of them is no whole number.
    """
    from transformers import GenerationConfig

    base = adapted(config)
    if base is not None:
        # Answers with adapters end as the base's do.
        return end_token_ids(base, tokenizer)

    path, gguf_file = resolve_path(config)
    ids = [tokenizer.eos_token_id]
    if not gguf_file:
        # Files that cannot be read are reported when the model is loaded.
        with suppress(OSError, ValueError, EngineError, *ODD_VALUE):
            try:
                # It lists ends of turns, which the tokenizer's one end token often is not.
                ids.append(GenerationConfig.from_pretrained(path, revision=revision_of(config)).eos_token_id)
            except OSError:
                ids += config_ends(load_config(config, path))
    return flat_ids(ids, config.path)


def config_ends(model_config: PretrainedConfig) -> list[Any]:
    """Return the settings of a model's end tokens: its own, and those of its text model.

    A composite configuration, as of a model that also reads pictures, may have either or both.
    """
    parts = (model_config, model_config.get_text_config())
    return [getattr(part, "eos_token_id", None) for part in parts]


def flat_ids(settings: Iterable[Any], path: str) -> frozenset[int]:
    """Return the token ids in some settings of end tokens, each of which is an id, a list of ids or None.

    Args:
        settings: of a model.
        path: the model's, for the message.

    Raises:
        EngineError: one of them is no whole number: no text would ever end on it.
    """
    values: list[Any] = []
    for setting in settings:
        if isinstance(setting, (list, tuple)):
            values.extend(setting)
        else:
            values.append(setting)

    ids = []
    for value in values:
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise EngineError(
                f"eos_token_id of {path} holds {value!r}, and a token's number is expected: look into "
                "generation_config.json and config.json"
            )
        ids.append(value)
    return frozenset(ids)


def load_model(
    config: ModelConfig, device: str | torch.device | None = None, *, four_bit: bool = False
) -> PreTrainedModel:
    """Return a model in evaluation mode, with ordinary weights that ``save_pretrained`` can write.

    GGUF is unpacked, small files once and for all (:data:`KEPT`). Adapters are merged into their base, which may be
    adapters of another.

    Args:
        config: the model. On a GPU, ``config.gpus`` of them share out its layers. ``config.dtype`` "auto" is bfloat16
            on a GPU that has it and float32 otherwise.
        device: where the weights go. None leaves them where Transformers puts them (the CPU, or partitioned under
            ZeRO-3), as trainers need it.
        four_bit: round the weights to 4 bits, to train adapters on them (QLoRA), on this process's GPU where it has
            one. Such weights are no ordinary ones.

    Raises:
        EngineError: the model cannot be loaded; names the path and the remedy.
    """
    with doing(f"loading {config.path}"):
        return _loaded(config, device, four_bit)


def _loaded(config: ModelConfig, device: str | torch.device | None, four_bit: bool) -> PreTrainedModel:
    """Return a model. Arguments and errors as of :func:`load_model`."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    # The console shows a progress bar of its own.
    disable_progress_bar()
    if torch.cuda.is_available():
        # PyTorch prefers cuDNN's attention on Hopper and Blackwell, which makes a plan for every shape that it has not
        # seen: for each token that is decoded, and most batches that are trained on.
        torch.backends.cuda.enable_cudnn_sdp(False)

    path, gguf_file = resolve_path(config)
    base = adapted(config)
    if four_bit:
        _check_four_bit(config, gguf_file, base)
    if base is not None:
        return _merged(load_model(base, device), config, path)
    if gguf_file:
        path, gguf_file = unpacked(config, path, gguf_file, "weights", dequantized)
    # Before the files are loaded, which takes longer than their digests.
    check_weights(Path(path))

    is_split = config.gpus > 1 and str(device).startswith("cuda")
    options = _precision(config, gguf_file)
    if is_split:
        options |= _split(config)
    if four_bit:
        options |= _four_bit(options["dtype"])
    model = _read(config, path, gguf_file, options).train(False)
    if four_bit:
        _keep_differentiable(model)

    # A model that is shared out, or in 4 bits, was loaded to where it stays.
    if device is None or is_split or four_bit:
        return model
    return model.to(device)  # type: ignore[arg-type]


def _check_four_bit(config: ModelConfig, gguf_file: str | None, base: ModelConfig | None) -> None:
    """Raise EngineError where a model is not rounded to 4 bits: GGUF weights, and adapters (``base``: of theirs)."""
    if gguf_file:
        raise EngineError(f"{config.path} holds GGUF weights, which are not rounded to 4 bits: leave out four_bit")
    if base is not None:
        raise EngineError(f"{config.path} holds adapters, which are not rounded to 4 bits: leave out four_bit")


def _read(config: ModelConfig, path: str, gguf_file: str | None, options: dict[str, Any]) -> PreTrainedModel:
    """Return the model in a directory, on the Hub or in a GGUF file, whose layers all have their weights.

    Args:
        config: the model.
        path: its directory or Hub id.
        gguf_file: the name of its GGUF file, or None.
        options: of ``from_pretrained``.
    """
    from transformers import AutoModelForCausalLM

    model: PreTrainedModel
    if gguf_file:
        model = from_pretrained(dequantized, config, path, gguf_file, **options)
        return model
    # Only safetensors are read, since a pickle runs code.
    options = options | {"output_loading_info": True, "use_safetensors": True}
    load_config(config, path)
    model, loading_info = from_pretrained(AutoModelForCausalLM.from_pretrained, config, path, None, **options)
    _check_layers(config, model, loading_info)
    return model


def _precision(config: ModelConfig, gguf_file: str | None) -> dict[str, Any]:
    """Return the options of ``from_pretrained`` for the weights' type and the attention that suits it."""
    from transformers.utils.import_utils import is_flash_attn_2_available

    dtype = resolve_dtype(config.dtype)
    options: dict[str, Any] = {"dtype": dtype}
    if config.attn_implementation is not None:
        options["attn_implementation"] = config.attn_implementation
    elif is_flash_attn_2_available() and not gguf_file and "float32" not in str(dtype):
        # FlashAttention computes in half precision only.
        options["attn_implementation"] = "flash_attention_2"
    return options


def _split(config: ModelConfig) -> dict[str, Any]:
    """Return the options by which Transformers shares a model's layers out over the first ``config.gpus`` GPUs."""
    import torch

    gpus_here = torch.cuda.device_count()
    if gpus_here < config.gpus:
        raise EngineError(f"model.gpus={config.gpus}: {config.path} needs so many GPUs, and there are {gpus_here} here")
    # Only so many GPUs: without limits Transformers would use all that are there.
    free_bytes = {index: torch.cuda.mem_get_info(index)[0] for index in range(config.gpus)}
    return {"device_map": "balanced", "max_memory": free_bytes}


def _four_bit(dtype: torch.dtype) -> dict[str, Any]:
    """Return the options that load QLoRA's frozen base (arXiv 2305.14314, section 3), rounded where it will lie.

    ``dtype`` is the type that the rounded weights are computed in.
    """
    import torch
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )
    device: int | str = "cpu"
    if torch.cuda.is_available():
        device = torch.cuda.current_device()
    return {"quantization_config": quantization, "device_map": {"": device}}


def _keep_differentiable(model: PreTrainedModel) -> None:
    """Keep bitsandbytes from packing 4-bit weights anew for its fast kernel on CPUs with AVX512-BF16.

    It would at the first pass in evaluation mode, for good. The kernel has no gradient, so that a training after it
    goes on without what flows through the base, and without an error.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _merged(base: PreTrainedModel, config: ModelConfig, path: str) -> PreTrainedModel:
    """Return the base with the adapters of a directory merged into it.

    Adapters that bring embeddings for more tokens resize the base.
    """
    from peft import PeftModel
    from safetensors import safe_open

    file = Path(path) / "adapter_model.safetensors"
    if not file.is_file():
        raise EngineError(f"{path} has no adapter_model.safetensors: adapters in a pickle are not loaded; convert them")

    with explained(config, path):
        embeddings = base.get_input_embeddings()
        name = next(name for name, module in base.named_modules() if module is embeddings)
        tensor_name = f"base_model.model.{name}.weight"
        with safe_open(file, "pt") as tensors:
            # Adapters that were trained with new tokens bring the embeddings of all.
            if tensor_name in tensors.keys():  # noqa: SIM118
                rows = tensors.get_slice(tensor_name).get_shape()[0]
                base.resize_token_embeddings(rows, mean_resizing=False)
        check_method(path, settings_of(path))
        merged = merge(path, PeftModel.from_pretrained(base, path))
        return merged.requires_grad_(True).train(False)


_LAYER = re.compile(r"(?P<stack>.*\.(?:layers|h|blocks))\.\d+\.")
"""The beginning of a weight's name that belongs to one of a stack of layers."""
_TOWER = re.compile(r"(?:^|\.)(?:vision|visual|image|audio|speech)")
"""Part of the name of a stack of layers that reads pictures or sound."""


def _check_layers(config: ModelConfig, model: PreTrainedModel, loading_info: Mapping[str, Any]) -> None:
    """Raise EngineError where a model's layers and weights do not belong together: missing weights would be random.

    Weights beside the layers do no harm: a text model has no use for those of a picture model.
    """
    missing = sorted(loading_info["missing_keys"])
    if missing:
        raise EngineError(
            f"{config.path}: {amount(len(missing), 'weight')} {agree(len(missing), 'are')} missing, as "
            f"{missing[0]}: config.json is another model's, or a "
            f"file is missing"
        )
    unexpected = sorted(loading_info["unexpected_keys"])
    # A text model may be read from the files of one with pictures, whose tower of layers it has no use for.
    own_stacks = {_stack_of(name) for name in model.state_dict()}
    in_layers = []
    for name in unexpected:
        stack = _stack_of(name)
        is_beside = stack is None or (stack not in own_stacks and _TOWER.search(stack) is not None)
        if not is_beside:
            in_layers.append(name)
    if in_layers:
        raise EngineError(
            f"{config.path}: {amount(len(in_layers), 'weight')} {agree(len(in_layers), 'are')} of layers it does "
            f"not have, as {in_layers[0]}: config.json "
            f"is another model's, or a file is missing"
        )


def _stack_of(name: str) -> str | None:
    """Return the stack of layers that a weight belongs to, as ``model.layers``; None for one that is in none."""
    layer = _LAYER.match(name)
    if layer is None:
        return None
    return layer["stack"]


def best_device() -> str:
    """Return ``cuda`` where there is a GPU, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a ``ModelConfig.dtype``; "auto" is bfloat16 on a GPU that has it, else float32."""
    import torch

    if name == "auto":
        name = "float32"
        if torch.cuda.is_available() and torch.cuda.is_bf16_supported():
            name = "bfloat16"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def own_context(config: ModelConfig) -> int:
    """Return the most tokens that a model's configuration allows, without reading weights; GGUF files name no limit."""
    # Adapters have no configuration of a model.
    base = adapted(config)
    if base is not None:
        return own_context(base)

    path, gguf_file = resolve_path(config)
    if gguf_file:
        return NO_LIMIT
    return context_length(load_config(config, path))


def context_length(config: PretrainedConfig, limit: int | None = None) -> int:
    """Return the most tokens of prompt and completion: the model's own limit or ``limit``, whichever is smaller.

    Some position embeddings are chosen by the longest text that is read at once: beyond a length (longrope's
    ``original_max_position_embeddings``), they are others for every text of the batch, and the keys that a cache holds
    were made with the former ones. Up to that length a text's embeddings are its own, so that it is the limit, which is
    logged. Embeddings of the kind ``dynamic`` change beyond ``max_position_embeddings``, which is a limit anyway.
    """
    text_config = config.get_text_config()
    # GPT-2 and its kin call it n_positions.
    model_limit = getattr(text_config, "max_position_embeddings", None) or getattr(text_config, "n_positions", None)
    if not model_limit:
        model_limit = NO_LIMIT
    for part in rope_parts(config):
        steady = part.get("original_max_position_embeddings") or NO_LIMIT
        if part.get("rope_type") == "longrope" and steady < model_limit:
            say_once(
                "the %s model is read up to %d tokens: beyond, its position embeddings (longrope) depend on the "
                "longest text of a batch",
                text_config.model_type,
                steady,
            )
            model_limit = steady
    return int(min(model_limit, limit or model_limit))


def rope_parts(config: PretrainedConfig) -> list[dict[str, Any]]:
    """Return the parameters of a model's rotary position embeddings: of each kind of layer, where there are several."""
    parameters = getattr(config.get_text_config(), "rope_parameters", None) or {}
    return [part for part in (parameters, *parameters.values()) if isinstance(part, dict)]
