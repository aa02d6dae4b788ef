"""Settings of stage studies."""

from dataclasses import dataclass

from judgetrain.engines.config import AnyEngine, LimitsConfig, engine_key
from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key, of_file


@dataclass
class StudiesConfig(LimitsConfig):
    """Stage studies: the ProbDiff paper's studies of the model that stage selfeval looked at, and of others."""

    prompts: int = key(80, "prompts answered repeatedly; 0 leaves the study out", low=0)
    spread_prompts: int = key(10, "prompts whose answers are sampled; 0 leaves the study out", low=0)
    engine: AnyEngine = engine_key(
        None,
        "who answers repeatedly in place of scorer.model, as an endpoint; the other studies are left out",
        active_if=lambda c: c.engine,
    )
    against: list[str] = key(
        [],
        "other models: directories of their finished stage selfeval over the same prompts, or globs of them",
        # The results are in the fingerprint by their content: a directory may be filled again under its name.
        content=beside(lambda directory, owner: f"{directory}/*.json*"),
    )
    judge: str = key(
        "",
        "who says whether a revision is better: base, teacher, external, pairwise:external, a directory",
        content=beside(lambda method, owner: method_directory(method) if method else None),
    )
    verdicts: str = key("", "people's verdicts on revisions: id, verdict (1 better, 0, -1), annotator", content=of_file)
    duels: str = key(
        "",
        "who says which model's answer is better, this run's or another's (studies.against): as studies.judge",
        content=beside(lambda method, owner: method_directory(method) if method else None),
        active_if=lambda c: c.duels,
    )
    official: dict[str, dict[str, float]] = key(
        {}, "published score -> model -> its value, over its source's prompts", active_if=lambda c: c.official
    )
