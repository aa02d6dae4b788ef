"""Stage correlate: ratings of single responses against every score of them."""
