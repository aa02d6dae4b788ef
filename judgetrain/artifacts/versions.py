"""The versions of the packages that results depend on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("judgetrain", "torch", "transformers", "trl", "peft", "datasets", "sentence-transformers", "scikit-learn")


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """The installed versions by package; those that are not installed are left out."""
    return {package: found for package in PACKAGES if (found := version_of(package))}
