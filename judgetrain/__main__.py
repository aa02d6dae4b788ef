"""The command line: ``python -m judgetrain stage=... recipe=... key=value ...`` (Hydra). Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from judgetrain.compose import CONF, recipe_overrides, register, typed
from judgetrain.config import Config
from judgetrain.errors import ConfigError, JudgetrainError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

_show_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
_complaints: list[BaseException] = []
"""The expected errors of this command's jobs."""


def run(config: Config) -> Any:
    """Do what ``config.stage`` says; returns the artifact's directory, or None for ``status``."""
    from judgetrain.pipeline import Pipeline

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']}: stages run in one process; start python -m judgetrain without "
            "torchrun, accelerate launch or deepspeed"
        )
    pipeline = Pipeline(config)
    if config.stage == "status":
        from judgetrain.status import show

        show(pipeline)
        return None
    if config.teacher.dry_run:
        from judgetrain.dry_run import show as show_cost

        show_cost(pipeline)
        return None
    return str(pipeline.run(config.stage))


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")  # type: ignore[untyped-decorator]
def job(composed: DictConfig) -> Any:
    """One Hydra job: from the composed configuration to the finished stage.

    An expected error is printed here, in place of Hydra's own report; the other jobs of a sweep go on.
    """
    try:
        return run(typed(composed))
    except (JudgetrainError, OmegaConfBaseException) as error:
        if _show_traceback:
            raise
        _complain(error)
        return None


def main() -> int:
    """Run the command line; the exit code is 0, 2 for an expected error, 130 when interrupted."""
    # Hydra prints a traceback for every error of a job unless it is told to let it through.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    _complaints.clear()
    try:
        register(ConfigStore.instance())
        sys.argv[1:] = recipe_overrides(sys.argv[1:])
        job()
    except (JudgetrainError, HydraException, OmegaConfBaseException) as error:
        if _show_traceback:
            raise
        _complain(error)
    except Exception as error:
        if _show_traceback or "No space left on device" not in str(error):
            raise
        print(
            "judgetrain: the disk is full; everything finished is kept. Free some space and run again.", file=sys.stderr
        )
        return EXIT_ERROR
    except KeyboardInterrupt:
        print(
            "judgetrain: interrupted; everything finished is kept. Run the same command again to go on.",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    return EXIT_ERROR if _complaints else 0


def _complain(error: BaseException) -> None:
    _complaints.append(error)
    print(f"judgetrain: {_message(error)}", file=sys.stderr)


def _message(error: BaseException) -> str:
    """The error and what caused it, on as few lines as it takes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if not line.startswith(("object_type=", "reference_type=", "set HYDRA_FULL"))]
    cause = error.__cause__
    if isinstance(error, HydraException) and isinstance(cause, OmegaConfBaseException):
        wanted.append(_message(cause))
    return "\n  ".join(dict.fromkeys(wanted))


if __name__ == "__main__":
    sys.exit(main())
