"""A tiny random Llama and its word-level tokenizer; a clock that only pauses move."""

import asyncio

from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.openai.gate import Clock
from judgetrain.engines.prompting import encode
from judgetrain.extras.world_base.pretrain import wrapped

WORDS = [
    *"the a cat dog sat on mat and ran fast list criteria score user assistant system ###".split(),
    *".,:#123456789",
]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}<end>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def word_tokenizer(template: str | None = TEMPLATE):
    """Word-level over WORDS with exact spacing, newlines as tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    specials = ["<pad>", "<unk>", "<end>", "<user>", "<assistant>", "<system>"]
    vocabulary = specials + ["\n"] + WORDS + [f" {word}" for word in WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n| ?#+| ?\w+| ?[^\w\s]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return wrapped(tokenizer, template)


def encoded(conversations, tokenizer) -> list[tuple[int, ...]]:
    """Return the prompt's token ids for each conversation."""
    fits, _ = encode([Request(messages=tuple(chat), sampling=Sampling()) for chat in conversations], tokenizer, 1 << 30)
    return [fits[i] for i in range(len(conversations))]


def tiny_llama(vocabulary: int, **overrides):
    """Return a random Llama whose logits are spread enough that greedy choices are not ties."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    settings = dict(vocab_size=vocabulary, hidden_size=32, intermediate_size=64, max_position_embeddings=96)
    settings |= dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, initializer_range=0.4)
    settings |= dict(pad_token_id=0, eos_token_id=2, bos_token_id=None)
    return LlamaForCausalLM(LlamaConfig(**settings | overrides)).eval()


def ask(text: str, **sampling) -> Request:
    """Return a user's message, to be answered with this sampling."""
    return Request(messages=({"role": "user", "content": text},), sampling=Sampling(**sampling))


class PausesOnly(Clock):
    """Time that passes by pauses alone, and at once, so that no test depends on how fast the machine is."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        """Return a time that is a little later at each call, since no two things happen at once."""
        self.time += 1e-6
        return self.time

    async def wait(self, ended: asyncio.Event, seconds: float) -> None:
        """Let others begin their pauses too, which then end together."""
        self.pauses.append(max(0.0, seconds))
        until = self.time + seconds
        await asyncio.sleep(0)
        if not ended.is_set():
            self.time = max(self.time, until)
