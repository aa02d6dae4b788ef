"""What can be relied on: abstentions with a guarantee, a gate, whether training paid."""
