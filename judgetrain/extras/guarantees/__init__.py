"""What can be relied on: corrected numbers, abstentions with a guarantee, people's places, and a gate."""
