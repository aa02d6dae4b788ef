"""The stage graph, planning and running it, and the command line."""

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
