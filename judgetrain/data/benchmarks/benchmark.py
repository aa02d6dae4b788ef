"""Benchmarks: labelled comparisons, from the generated world, a file or the Hub."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data import world
from judgetrain.data.benchmarks.reading import adapter_of, case_of, read_cases, source_of
from judgetrain.data.cells import majority
from judgetrain.data.config import BenchmarkConfig, WorldConfig
from judgetrain.data.prompts import Asked, clusters
from judgetrain.errors import DataError
from judgetrain.schema import Comparison, Verdict


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark as evaluated.

    A comparison's label is None where its votes have no majority; metrics over labels leave it out, those over votes
    do not. ``left_out`` counts by reason what is not in it. ``votes`` and ``prompts`` (which prompt a comparison
    belongs to, where the rows say so) are by comparison id, ``domains`` (coarse groups) by group; all may be empty.
    """

    name: str
    split: str
    comparisons: list[Comparison]
    left_out: Mapping[str, int] = field(default_factory=dict)
    votes: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)

    def prompt_of(self, comparison: Comparison) -> str:
        """What comparisons on one prompt have in common: the prompt that the rows name, else what the user said.

        Turns of one conversation are about one prompt.
        """
        named = self.prompts.get(comparison.id)
        return "\n".join(self._clusters[comparison.id]) if named is None else named

    @cached_property
    def _clusters(self) -> Mapping[str, Asked]:
        found = clusters([c.dialogue.asked for c in self.comparisons])
        return {c.id: asked for c, asked in zip(self.comparisons, found, strict=True)}

    def part(self, comparisons: list[Comparison], split: str) -> Benchmark:
        """The benchmark with some of its comparisons only."""
        return replace(self, comparisons=comparisons, split=split)


def load_benchmark(benchmark: BenchmarkConfig, index: int, seed: int, world_config: WorldConfig | None) -> Benchmark:
    """The comparisons of a benchmark, with labels.

    Raises:
        ConfigError: a missing path or adapter.
        DataError: a malformed row, an unknown label or a repeated id (file, row and value), or nothing left.
    """
    key, source = f"evaluate.benchmarks[{index}]", source_of(benchmark)
    if source.type == "world":
        assert world_config is not None
        made = world.eval_comparisons(world_config, seed)
        cases = [case_of(replace(c, rubric=world.true_rubric(c.dialogue.query))) for c in made]
    else:
        cases = read_cases(benchmark, key)
    comparisons = [replace(case.comparison, label=majority(case.votes)) for case in cases]
    kept = [c for c in comparisons if benchmark.max_chars is None or c.characters <= benchmark.max_chars]
    left_out = {"too_long": len(comparisons) - len(kept)}
    if benchmark.limit is not None and benchmark.limit < len(kept):
        left_out["over_limit"] = len(kept) - benchmark.limit
        kept = random.Random(derive_seed(seed, "benchmark", benchmark.name)).sample(kept, benchmark.limit)
    unlabelled = sum(c.label is None for c in kept)
    left_out["no_label" if benchmark.unlabelled else "no_majority"] = unlabelled
    if unlabelled == len(kept):
        advice = f"look at max_chars={benchmark.max_chars} and where={dict(benchmark.where)}"
        raise DataError(f"{key}: no comparison with a label is left of {len(comparisons)}; {advice}")
    prompts = {case.comparison.id: case.prompt or case.comparison.id for case in cases}
    adapter = adapter_of(source) if source.adapter else None
    groups = {c.group for c in comparisons if c.group is not None} if adapter else ()
    return Benchmark(
        name=benchmark.name,
        split={"world": "heldout", "hub": source.split}.get(source.type, "test"),
        comparisons=kept,
        left_out={reason: n for reason, n in left_out.items() if n},
        votes={c.comparison.id: tuple(c.votes) for c in cases} if any(len(c.votes) > 1 for c in cases) else {},
        prompts=prompts if len(set(prompts.values())) < len(cases) else {},
        domains={group: name for group in groups if adapter and (name := adapter.domain(group)) is not None},
    )
