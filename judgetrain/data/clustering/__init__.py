"""Embeddings of queries, k-means, and a sample that is even over clusters (branching paper, A.1)."""
