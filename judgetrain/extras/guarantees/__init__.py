"""What can be relied on: a gate, and whether training paid."""
