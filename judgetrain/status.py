"""``stage=status``: what there is, what is partial, and what a run would do."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from judgetrain.pipeline import Pipeline


def show(pipeline: Pipeline, target: str = "evaluate") -> None:
    """Print a table of all stages for the pipeline's configuration."""
    table = Table(title=f"recipe {pipeline.config.recipe_name}, seed {pipeline.config.seed}", title_justify="left")
    rows = pipeline.status(target)
    for column in rows[0]:
        table.add_column(column.replace("a run would", f"stage={target} would"), no_wrap=column != "detail")
    for row in rows:
        table.add_row(*row.values())
    Console().print(table)
