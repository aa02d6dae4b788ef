"""Tell errors of memory that ran out from errors of what was being done with it."""

from __future__ import annotations

import re

SAYS_FULL = re.compile("out of memory|can't allocate memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""The words for full memory in errors of PyTorch and CUDA's libraries that have no class of their own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out, on a GPU or not.

    On the CPU, and in some of CUDA's libraries, it is a RuntimeError like any other. Where such errors are taken for a
    fault of a model or a file, a user would look for it there.
    """
    # By its name, since PyTorch takes seconds to import.
    has_own_class = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return has_own_class or (isinstance(error, RuntimeError) and SAYS_FULL.search(str(error)) is not None)
