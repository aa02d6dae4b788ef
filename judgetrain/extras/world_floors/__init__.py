"""What rules that judge nothing reach on the generated world, as methods of stage evaluate."""
