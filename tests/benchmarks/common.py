"""What the benchmark programs do alike: a command line whose help is the program's docstring."""

from __future__ import annotations

import argparse


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser that shows the docstring as it is laid out."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
