"""Scalar reward models as judges (``reward:DIR``)."""
