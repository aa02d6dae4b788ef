"""``python -m judgetrain``: see :mod:`judgetrain.pipeline.cli`."""

import sys

from judgetrain.pipeline.cli import command

if __name__ == "__main__":
    sys.exit(command())
