"""trackio and MLflow. Where runs are kept is theirs to say (``TRACKIO_DIR``, ``MLFLOW_TRACKING_URI``)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from judgetrain.artifacts.tracker import Run, StageFacts, artifact_name, files_of, unless_set, without_secrets
from judgetrain.extras.trackers.wandb_run import WandbRun

_REFUSED = r"[^\w./: -]"
"""Characters that no name of MLflow's may have."""
_AT_ONCE = 100
"""Parameters that MLflow takes in one request."""


class TrackioRun(WandbRun):
    """A run of trackio, whose interface is W&B's; it has no summary."""

    name = "trackio"

    def summary(self, values: Mapping[str, Any]) -> None:
        # Under names of their own, beside the metrics that are logged by step.
        self.log({f"summary/{name}": value for name, value in values.items()})

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        import trackio

        self._run.log({name: trackio.Table(columns=[*columns], data=[*map(list, rows)])})

    def alert(self, title: str, text: str) -> None:
        self._run.alert(title, text)

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._run.use_artifact(f"{artifact_name(manifest)}:{manifest['fingerprint']}")

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        import trackio

        artifact = trackio.Artifact(artifact_name(manifest), manifest.get("artifact", "dataset"))
        for place, path, _ in files_of(directory):
            # A reference to where the file lies: artifacts stay in output_dir, and a checksum would read gigabytes of
            # weights.
            artifact.add_reference(path.resolve().as_uri(), place, checksum=False)
        self._run.log_artifact(artifact, aliases=["latest", manifest["fingerprint"]])


@contextmanager
def trackio_run(facts: StageFacts) -> Iterator[Run]:
    """Yield the stage's run."""
    import trackio

    config = without_secrets(facts.settings)
    run = trackio.init(facts.project, name=facts.id, group=facts.group, config=config, resume="allow", embed=False)
    try:
        yield TrackioRun(run)
    finally:
        trackio.finish()


class MlflowRun(Run):
    """MLflow's active run; what it was made from stands in its tags, ``uses.STAGE``."""

    name = "MLflow"

    def __init__(self, mlflow: Any) -> None:
        self._mlflow = mlflow

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        named = {re.sub(_REFUSED, "_", name): float(value) for name, value in metrics.items()}
        self._mlflow.log_metrics(named, step=step)

    def summary(self, values: Mapping[str, Any]) -> None:
        self.log({f"summary/{name}": value for name, value in values.items()})

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        # MLflow takes a table by its columns.
        by_column = {}
        for place, column in enumerate(columns):
            by_column[column] = [row[place] for row in rows]
        self._mlflow.log_table(by_column, f"{name}.json")

    def uses(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._mlflow.set_tag(f"uses.{manifest['stage']}", manifest["fingerprint"])

    def makes(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        for place, _, sent in files_of(directory):
            # Small files alone; weights stay where they are.
            if sent is not None:
                self._mlflow.log_text(sent, place)


@contextmanager
def mlflow_run(facts: StageFacts) -> Iterator[Run]:
    """Yield the stage's run. A server out of reach is asked twice: MLflow's own seven tries take minutes a call."""
    with unless_set(MLFLOW_HTTP_REQUEST_MAX_RETRIES=1, MLFLOW_HTTP_REQUEST_TIMEOUT=30):
        import mlflow
        from pandas import json_normalize

        experiment = mlflow.set_experiment(facts.project).experiment_id
        earlier = mlflow.MlflowClient().search_runs([experiment], f"tags.id = '{facts.id}'")
        # A restarted stage goes on in the run that it began, which MLflow finds by its own ids alone.
        run_id = None
        if earlier:
            run_id = earlier[0].info.run_id
        tags = {"id": facts.id, "group": facts.group}
        mlflow.start_run(run_id, run_name=facts.id, tags=tags)
        # Until the stage has come to its end without an error.
        status = "FAILED"
        try:
            settings = json_normalize(without_secrets(facts.settings)).iloc[0].items()
            # Flat names and short texts, which is all that MLflow's parameters are.
            params = [(re.sub(_REFUSED, "_", str(name)), str(value)[:500]) for name, value in settings]
            for start in range(0, len(params), _AT_ONCE):
                mlflow.log_params(dict(params[start : start + _AT_ONCE]))
            yield MlflowRun(mlflow)
            status = "FINISHED"
        finally:
            mlflow.end_run(status)
