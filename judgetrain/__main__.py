"""``python -m judgetrain``: see :mod:`judgetrain.pipeline.cli`."""

from judgetrain.pipeline.cli import command, leave

if __name__ == "__main__":
    leave(command())
