"""A byte-level tokenizer, trained on a few lines, so that merges could cross turn boundaries."""

from collections.abc import Sequence
from typing import Any


def byte_level(template: str | None, lines: Sequence[str], *specials: str) -> Any:
    """BPE with GPT-2's pre-tokenisation, ``<s>`` and ``</s>``, and further special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<s>", "</s>", *specials],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    options: dict[str, Any] = {"additional_special_tokens": [*specials]} if specials else {}
    if template is not None:
        options["chat_template"] = template
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", **options)
