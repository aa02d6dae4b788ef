"""End a fork server with its parent, also while it imports.

A fork server notices the end of its parent once it serves. Its imports come before, and take minutes on a busy machine.
It imports this module first, which has Linux end it; elsewhere it ends when its imports are done.

Linux looks at the thread that started the server, not at its process. Where a thread starts workers and ends, the
server ends with it, and multiprocessing starts another one when it needs it.
"""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1
"""The option of Linux's ``prctl`` that names the signal a process gets when its parent ends (prctl(2))."""

# Only in a fork server: other processes may outlive who started them. Workers, forked later, do not inherit it.
if sys.platform == "linux" and any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
