"""Parts of a data set by prompt: what is learned from, chosen by and reported on shares no prompt.

A prompt's place between 0 and 1 is a hash of its first question. So a data set can be divided without a list of rows:
rows that are added, taken out or put in another order leave the others where they are, and turns of one conversation
stay together.
"""

import hashlib
from collections.abc import Sequence

from judgetrain.data.prompt_keys import normalised
from judgetrain.errors import ConfigError
from judgetrain.schema import Dialogue


def check_part(part: Sequence[float], key: str) -> None:
    """Refuse (ConfigError) a part that is no stretch of 0 to 1; ``key`` is its configuration key."""
    if not part:
        return
    if len(part) != 2 or not 0 <= part[0] < part[1] <= 1:
        raise ConfigError(
            f"{key}={list(part)}: expected two numbers, the beginning and the end of a stretch of 0 to 1, as [0, 0.8]"
        )


def place_of(dialogue: Dialogue) -> float:
    """Return where between 0 and 1 a dialogue's prompt stands, by a hash of the user's first message."""
    first = next(iter(dialogue.user_texts), dialogue.query)
    digest = hashlib.sha256(normalised(first).encode("utf-8", "surrogatepass")).digest()
    # The first 64 bits as a share of all that there are.
    return int.from_bytes(digest[:8], "big") / 2**64


def in_part(dialogue: Dialogue, part: Sequence[float]) -> bool:
    """Return whether a dialogue's prompt stands in a part, its beginning included; an empty part is everything."""
    if not part:
        return True
    # Without its end: of two parts that meet, a prompt stands in one alone.
    begin, end = part
    return begin <= place_of(dialogue) < end
