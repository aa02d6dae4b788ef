"""What a judge is asked, and how its replies are read."""
