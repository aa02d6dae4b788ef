"""What happens to a judge that something is optimised against: best of n."""
