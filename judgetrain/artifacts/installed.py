"""What of this project, and of the packages that results depend on, is installed."""

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
    """The installed versions of :data:`PACKAGES`; those that are not installed are left out."""
    return {package: found for package in PACKAGES if (found := version_of(package))}
