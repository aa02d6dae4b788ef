"""Where the shards of a stage are processed: in this process, or by the workers of a Ray cluster."""
