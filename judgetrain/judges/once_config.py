"""The settings of judges that are asked once, whose kinds are ``pairwise`` and ``pointwise``."""

from dataclasses import dataclass

from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import in_place, key


@dataclass
class OnceConfig:
    """Settings of a judge that is asked once."""

    prompts: str = key(
        "pairwise",
        "prompt set: a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.0, 1.0, 512), "of the reply")
