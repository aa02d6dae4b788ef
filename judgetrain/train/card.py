"""The model card of a trained judge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from judgetrain import __version__
from judgetrain.artifacts import write_text_atomic

_TITLES = {"initial": "Initial judge", "sft": "SFT judge", "dpo": "DPO judge"}


def write_card(directory: Path, *, stage: str, base: str, recipe: str, lineage: Mapping[str, str]) -> None:
    """Write ``README.md``: what the model is, how to use it, and the fingerprints of what it was made from."""
    made_from = "\n".join(f"- `{name}`: `{mark}`" for name, mark in lineage.items())
    name = Path(base).name if base.startswith(("/", ".", "~")) else base
    write_text_atomic(
        directory / "README.md",
        f"""---
library_name: transformers
tags: [judgetrain, llm-judge, {stage}]
---

# {_TITLES[stage]}

A branching preference judge trained by judgetrain {__version__}, recipe `{recipe}`, from the base model `{name}`, whose
licence applies. It names criteria for a query, writes a scoring guideline for each, and scores two responses by it.

```python
from judgetrain.judges import BranchingJudge

judge = BranchingJudge.from_pretrained("path/to/this/directory", branches=1)
print(judge.compare(comparison))
```

`prompts.yaml` holds the prompts it was trained with, `judge.json` how it is sampled, `training_args.json` the settings.

## Made from

{made_from}

Its agreement and consistency are in the `metrics.json` of stage `evaluate`.
""",
    )
