"""Make the shipped base model: tokenizer and a small Llama pretrained on the world's text.

Reproduces ``judgetrain/data/world/base`` in five phases; in an hour and three quarters on one core:

    python -m judgetrain.extras.world_base.pretrain --output judgetrain/data/world/base
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.data.world import pretraining_queries
from judgetrain.data.world.language import load_language
from judgetrain.extras.world_base.corpus import Corpus

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 1
BATCH = 32

CHAT_TEMPLATE = (
    "{%- for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}"
    "{%- if m['role'] == 'assistant' %}{{ '<end>' }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)

CONTRACT = (
    "Score the responses.\nResponse A Score: 2\nAnalysis of Response A: it\nResponse B Score: 4\n"
    "Analysis of Response B: it\nComparison: A is better. B is better. both are equal.\nContext: "
    "List one two three 6 7 8 9 Query Criterion Guideline Response\nUser: Assistant: System:\n"
    "you prefer checks , asks the very helpful question or says nothing more !"
)
"""Words of the judge's prompts, of its output contract and of attacks on it, so that the vocabulary has them."""


def make_tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    """Return a word-level tokenizer over the corpus; ``decode(encode(x)) == x`` for the world's text."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    specials = ["<pad>", "<unk>", "<end>", "<user>", "<assistant>", "<system>"]
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    # A blank belongs to the word behind it, so that joining the tokens gives the text back.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n| ?\w+| ?[^\w\s]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    rng = random.Random(f"tokenizer {SEED}")
    language = load_language()
    # So many that every word of the language comes up.
    texts = [text for _ in range(20_000) for text in corpus.exchange(rng)]
    # At the beginning of a line and behind a blank a word is two tokens.
    texts += [f"{q}\nQuery: {q}" for q in language.first_queries] + [CONTRACT]
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=specials, show_progress=False))
    return wrapped(tokenizer, CHAT_TEMPLATE, model_max_length=512)


def wrapped(tokenizer: Tokenizer, template: str | None, **options: Any) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the special tokens of the world's chats, as Transformers has them."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<end>",
        additional_special_tokens=["<user>", "<assistant>", "<system>"],
        chat_template=template,
        clean_up_tokenization_spaces=False,
        **options,
    )


@dataclass(frozen=True)
class Phase:
    """One phase of pretraining.

    Args:
        steps: batches of :data:`BATCH` texts.
        learning_rate: the highest one, which falls to 0 along a cosine.
        worded: share of reviews on one criterion that are written out in a judge's words.
        last: whether reviewers err, responses are of every shape, and answers alone are learned.
        kinds: whether some texts ask for one more query like another one.
    """

    steps: int
    learning_rate: float
    worded: float
    last: bool = False
    # The texts are drawn by what is printed of a phase; the earlier phases' texts are to stay as they were.
    kinds: bool = field(default=False, repr=False)


PHASES = (
    Phase(2800, 2e-3, 0.0),
    Phase(1400, 1.5e-3, 0.8),
    Phase(1800, 1.2e-3, 1.0, last=True),
    Phase(2000, 1e-3, 1.0, last=True),
    Phase(800, 1e-3, 1.0, last=True, kinds=True),
)


def pretrain(output: Path) -> None:
    """Train the base with next-token loss over whole exchanges and save it in the Hugging Face layout."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    set_seed(SEED)
    pool = pretraining_queries(load_language())
    tokenizer = make_tokenizer(Corpus(load_language(), pool))
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "max_position_embeddings": 512}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True}
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **heads, **ends))
    # Each phase has an optimizer and a schedule of its own, and goes on from the weights of the one before.
    for phase in PHASES:
        corpus = Corpus(load_language(), pool, phase.worded, varied=phase.last, kinds=phase.kinds)
        _train(model, tokenizer, corpus, phase, output / "trainer")
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)


def _train(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, corpus: Corpus, phase: Phase, scratch: Path
) -> None:
    import torch
    from datasets import IterableDataset
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    def rows() -> Iterator[dict[str, Any]]:
        # By what is printed of the phase: every phase reads other texts.
        rng = random.Random(f"corpus {SEED} {phase}")
        while True:
            # Exchanges of similar length side by side, so that little of a batch is padding.
            block = [_encode(tokenizer, corpus.exchange(rng), phase.last) for _ in range(BATCH * 16)]
            block.sort(key=lambda row: len(row["input_ids"]))
            batches = [block[i : i + BATCH] for i in range(0, len(block), BATCH)]
            rng.shuffle(batches)
            yield from (row for batch in batches for row in batch)

    arguments = TrainingArguments(
        output_dir=str(scratch),
        max_steps=phase.steps,
        per_device_train_batch_size=BATCH,
        learning_rate=phase.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=100,
        weight_decay=0.01,
        adam_beta2=0.98,
        logging_steps=100,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        remove_unused_columns=False,
        seed=SEED,
    )
    data = IterableDataset.from_generator(rows)
    Trainer(model, arguments, data_collator=DataCollatorForSeq2Seq(tokenizer), train_dataset=data).train()


def _encode(tokenizer: PreTrainedTokenizerFast, exchange: tuple[str, str], answer_alone: bool) -> dict[str, list[int]]:
    """Return the token ids and labels of an exchange; ``answer_alone``: the question is read, and not learned."""
    user, assistant = exchange
    question = tokenizer.encode(f"<user>{user}<assistant>", add_special_tokens=False)
    answer = tokenizer.encode(f"{assistant}<end>", add_special_tokens=False)
    question_labels = question
    if answer_alone:
        # The index that PyTorch's cross-entropy leaves out.
        question_labels = [-100] * len(question)
    return {"input_ids": question + answer, "labels": question_labels + answer}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    pretrain(parser.parse_args().output)


if __name__ == "__main__":
    main()
