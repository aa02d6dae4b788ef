"""What ``--help`` says, without composing a configuration."""

from __future__ import annotations

from judgetrain import rooms
from judgetrain.pipeline.options import groups

_TEXT = """judgetrain: train your own LLM judge by branching preference learning.

python -m judgetrain stage=STAGE recipe=RECIPE key=value ...     or, for short, judgetrain STAGE key=value ...

Stages (each makes whatever it needs first):
{stages}

Examples:
  python -m judgetrain stage=evaluate                        the quickstart, end to end
  python -m judgetrain stage=dpo recipe=pairs data_dir=DIR   your own comparisons
  python -m judgetrain judge verdicts.judge=DIR verdicts.source.path=FILE    a judge's verdicts on your comparisons
  python -m judgetrain stage=status
  python -m judgetrain stage=dpo recipe=path/to/mine.yaml train=lora teacher=openai
  python -m judgetrain -m stage=dpo train.dpo.beta=0.05,0.1,0.5
  python -m judgetrain recipe=sweeps/beta_learning_rate sweep=joblib
  python -m judgetrain --cfg job --resolve                   the whole configuration
  python -m judgetrain keys train.dpo                        what its keys mean, with defaults and ranges
  eval "$(judgetrain -sc install=bash)"                      completion of keys and groups (zsh, fish too)

Groups, selected as group=option:
{groups}

Every key with its type, default, range and meaning: python -m judgetrain keys [PREFIX]
Flags of Hydra: python -m judgetrain --hydra-help"""


def usage() -> str:
    """Stages, examples, and the groups of conf/ and recipes/ with their options."""
    makes = {name: entry.does for name, entry in (rooms.stages() | rooms.commands()).items()}
    return _TEXT.format(
        stages="\n".join(f"  {name:<10} {what}" for name, what in makes.items()),
        groups="\n".join(f"  {group}: {', '.join(options)}" for group, options in groups().items()),
    )
