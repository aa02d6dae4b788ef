"""``python -m judgetrain``: see :mod:`judgetrain.pipeline.cli`."""

import sys

from judgetrain.pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
