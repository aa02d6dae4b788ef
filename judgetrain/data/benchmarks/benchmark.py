"""Benchmarks: labelled comparisons, from the generated world, a file or the Hub."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data import world
from judgetrain.data.benchmarks.reading import adapter_of, read_cases, source_of
from judgetrain.data.cells import majority
from judgetrain.data.config import BenchmarkConfig, WorldConfig
from judgetrain.data.prompts import Asked, clusters
from judgetrain.data.sources import read_comparisons
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
        DataError: a malformed row or unknown label (file, row and value), a repeated id, or nothing left.
    """
    key = f"evaluate.benchmarks[{index}]"
    loaded = _adapted(benchmark, key) if benchmark.source.adapter else _plain(benchmark, key, seed, world_config)
    comparisons, left_out = loaded.comparisons, dict(loaded.left_out)
    kept = [c for c in comparisons if benchmark.max_chars is None or c.characters <= benchmark.max_chars]
    left_out["too_long"] = len(comparisons) - len(kept)
    if benchmark.limit is not None and benchmark.limit < len(kept):
        left_out["over_limit"] = len(kept) - benchmark.limit
        kept = random.Random(derive_seed(seed, "benchmark", benchmark.name)).sample(kept, benchmark.limit)
    unlabelled = "no_label" if benchmark.unlabelled else "no_majority"
    left_out[unlabelled] = sum(c.label is None for c in kept)
    if left_out[unlabelled] == len(kept):
        raise DataError(
            f"{key}: no comparison with a label is left of {len(comparisons)}; look at max_chars={benchmark.max_chars} "
            f"and where={dict(benchmark.where)}"
        )
    return replace(loaded, comparisons=kept, left_out={k: n for k, n in left_out.items() if n})


def _adapted(benchmark: BenchmarkConfig, key: str) -> Benchmark:
    cases = read_cases(benchmark, key)
    source = source_of(benchmark)
    adapter = adapter_of(source)
    groups = {c.comparison.group for c in cases if c.comparison.group is not None}
    domains = {g: name for g in groups if (name := adapter.domain(g)) is not None}
    several = len({c.prompt for c in cases}) < len(cases)
    voted = any(len(c.votes) > 1 for c in cases)
    return Benchmark(
        name=benchmark.name,
        split=source.split if source.type == "hub" else "test",
        comparisons=[replace(c.comparison, label=majority(c.votes)) for c in cases],
        votes={c.comparison.id: tuple(c.votes) for c in cases} if voted else {},
        prompts={c.comparison.id: c.prompt for c in cases} if several else {},
        domains=domains,
    )


def _plain(benchmark: BenchmarkConfig, key: str, seed: int, world_config: WorldConfig | None) -> Benchmark:
    source = source_of(benchmark)
    if source.type == "world":
        assert world_config is not None
        comparisons = [
            replace(c, rubric=world.true_rubric(c.dialogue.query)) for c in world.eval_comparisons(world_config, seed)
        ]
        return Benchmark(name=benchmark.name, split="heldout", comparisons=comparisons)
    labelled = None if benchmark.unlabelled else True
    comparisons = list(read_comparisons(source, f"{key}.source", labelled=labelled))
    seen: set[str] = set()
    for comparison in comparisons:
        if comparison.id in seen:
            raise DataError(f"{key}: the id {comparison.id!r} stands twice; ids must differ")
        seen.add(comparison.id)
    split = source.split if source.type == "hub" else "test"
    return Benchmark(name=benchmark.name, split=split, comparisons=comparisons)
