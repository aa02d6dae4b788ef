"""Stage ``tree``: an evaluation tree of each comparison that the teacher left (branching paper, section 4.3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import TREE_READS
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.label.labels import each_in
from judgetrain.label.stages import TreeSettings
from judgetrain.schema import Comparison


def run(settings: TreeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``trees`` shards by the Initial judge: one complete tree per remaining comparison."""
    config = settings.tree
    model = inputs["initial"] / "model"
    remaining = [Comparison.from_row(row) for row in read_rows(inputs["teacher"], "remaining")]
    # Stage teacher has put them in a random order, unless its evaluations are from a file.
    comparisons = remaining[: config.max_comparisons]
    # Every criterion of the list is judged, unlike by the teacher; a list that came out short is asked for again.
    shape = Shape(
        count=config.criteria,
        criteria=config.criteria,
        guidelines=config.guidelines,
        judgments=config.judgments,
        orders=TREE_READS[config.reads],
        top_up=True,
        steer=each_in(TREE_READS[config.reads]),
    )
    # The prompts that the judge was trained with, whatever the configuration says now.
    prompts = load_prompt_set(model / "prompts.yaml")
    name = model.parent.parent.name
    with loaded_once(lambda: make_engine(settings.engine, model_path=str(model), name=name)) as engine:

        def process(index: int, shard: Sequence[Comparison]) -> ShardResult:
            seed = out.shard_seed(index)
            return shard_of(grow(shard, TreeModel(engine(), prompts, config), shape, seed))

        # What a paid model takes is counted in this process, so its requests stay here.
        spread = not settings.engine.paid
        work = Work(process=process, load=engine, spread=spread)
        out.sharded("trees", comparisons, config.shard_size, work, "comparisons")
