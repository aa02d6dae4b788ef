"""Configurations as the command line composes them, and the command line itself in a process of its own."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore

from judgetrain.pipeline import CONF
from judgetrain.pipeline.cli import main
from judgetrain.pipeline.compose import register, typed
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline


def composed(*overrides: str, hydra: bool = False, as_run: bool = False) -> Any:
    """Return what Hydra makes of conf/, a recipe and a command line; ``as_run``: only the sections that a run reads."""
    register(ConfigStore.instance(), overrides if as_run else None)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides), return_hydra_config=hydra)


def configured(*overrides: str, as_run: bool = False) -> Config:
    """Return the typed configuration of a command line; what it runs stays in this process, where it can be watched."""
    config = typed(composed(*overrides, as_run=as_run), overrides)
    if not any(override.startswith("executor.workers=") for override in overrides):
        config.executor.workers = None
    return config


def marks(config: Config) -> dict[str, str]:
    """Return the fingerprint of every stage under a configuration."""
    pipeline = Pipeline(config)
    return {name: pipeline.plan(name).fingerprint for name in STAGES}


def judgetrain(*arguments: str, cwd: Path | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, and return that with what it printed."""
    return subprocess.run(
        [sys.executable, "-m", "judgetrain", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
        env={**os.environ, "HYDRA_FULL_ERROR": ""},
    )


def here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as :func:`judgetrain` does, but in this process, which has its imports behind it."""
    patched = patch.object(sys, "argv", ["judgetrain", *arguments])
    with patched, redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main()
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def modules_after(*arguments: str) -> tuple[set[str], str]:
    """Return the modules that the command line has imported when it ends, and what it printed before."""
    code = (
        "import sys, judgetrain.__main__ as m\n"
        f"sys.argv = ['judgetrain', *{list(arguments)!r}]\n"
        "try:\n    m.command()\nexcept SystemExit:\n    pass\n"
        "print('MODULES', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    printed, _, modules = done.stdout.rpartition("MODULES ")
    return set(modules.split()), printed + done.stderr


def check_stage(name: str, config: Config) -> None:
    """Check what a stage reads of a configuration, as a run does before its first stage."""
    STAGES[name].check(STAGES[name].settings.of(config))
