"""What can be relied on: a gate, whether training paid, and what judges were trained on."""
