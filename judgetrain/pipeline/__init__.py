"""The stage graph, planning and running it, and the command line."""
