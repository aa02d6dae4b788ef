"""A module whose import outlasts a test: stands for the libraries that a fork server imports when it starts."""

import os
import time
from pathlib import Path

Path(os.environ["SLOW_IMPORT_BEGAN"]).touch()
time.sleep(300)
