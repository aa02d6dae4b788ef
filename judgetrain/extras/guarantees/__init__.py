"""What can be relied on: corrected numbers, abstentions with a guarantee, and a gate."""
