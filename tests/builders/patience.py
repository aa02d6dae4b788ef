"""How long a test waits for another process."""

# A guard against waiting for ever, and nothing that a test measures: what is waited for takes seconds on an idle
# machine. Parts of continuous integration share two cores, on which a server of vLLM once took six minutes to start.
PATIENCE_S = 1200.0
