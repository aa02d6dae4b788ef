"""A module whose import outlasts a test: stands for the libraries that a fork server imports when it starts.

It holds Python's lock meanwhile, as loading a large library does, so that no thread of the process runs.
"""

import ctypes
import os
from pathlib import Path

Path(os.environ["SLOW_IMPORT_BEGAN"]).touch()
ctypes.PyDLL(None).sleep(300)
