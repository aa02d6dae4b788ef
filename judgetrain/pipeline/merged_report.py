"""``stage=report``: one report of several evaluations, a sweep among them."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.errors import ConfigError
from judgetrain.evaluate.report.merge import Run, merged
from judgetrain.evaluate.report.render import console_tables, html_page, markdown
from judgetrain.judges.method import Method
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import JOB, evaluations, read_jobs


def merge(pipeline: Pipeline) -> None:
    """Write ``report.html``, ``report.md``, ``metrics.json`` and ``summary.json`` to ``output_dir/reports/NAME``.

    Raises:
        ConfigError: a run that is not there or not finished, or no evaluation at all.
    """
    config, console = pipeline.config, pipeline.console
    if not config.report.name.strip(".") or Path(config.report.name).name != config.report.name:
        raise ConfigError(
            f"report.name={config.report.name!r}: must be the name of one folder, which is made in "
            f"{config.output_dir}/reports"
        )
    made = pipeline.root / "evaluate"
    if not config.report.runs and not any(made.glob(f"*/{MANIFEST}")):
        raise ConfigError(
            f"stage=report: {made} holds no finished evaluation; run stage=evaluate first, or name others in "
            "report.runs"
        )
    directories = list(_directories(config.report.runs or [str(made / "*")], Path(config.output_dir)))
    runs = [Run.read(d) for d in directories]
    report = merged(runs, config.report.name, [Method.parse(text).name for text in config.evaluate.methods])
    target = Path(config.output_dir) / "reports" / config.report.name
    write_json_atomic(target / "metrics.json", [row.to_row() for row in report.rows])
    write_json_atomic(target / "paired.json", [row.to_row() for row in report.paired])
    write_json_atomic(target / "summary.json", report.summary())
    write_text_atomic(target / "report.md", markdown(report))
    write_text_atomic(target / "report.html", html_page(report))
    console.plain(console_tables(report))
    console.line(f"report: {len(runs)} evaluations: {target / 'report.html'}")


def _directories(runs: Iterable[str], output: Path) -> Iterable[Path]:
    seen: set[Path] = set()
    for entry in runs:
        paths = [Path(p) for p in sorted(glob.glob(str(Path(entry).expanduser())))]
        if not paths:
            raise ConfigError(f"report.runs: {entry!r}: no such directory; give evaluations or a sweep of {output}")
        for path in paths:
            found = _of_sweep(path) if any(path.glob(f"*/{JOB}")) else [path]
            for directory in found:
                if directory.resolve() not in seen and (len(paths) == 1 or (directory / MANIFEST).is_file()):
                    seen.add(directory.resolve())
                    yield directory


def _of_sweep(sweep: Path) -> list[Path]:
    """The evaluations that the jobs of a sweep ended in."""
    found = evaluations(read_jobs(sweep))
    if not found:
        raise ConfigError(f"report.runs: {str(sweep)!r}: no job of this sweep made an evaluation (stage=evaluate)")
    return found
