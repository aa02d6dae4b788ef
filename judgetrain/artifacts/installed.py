"""What of this project, and of the packages that results depend on, is installed."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version

from judgetrain.errors import ConfigError

PACKAGES = ("judgetrain", "torch", "transformers", "trl", "peft", "datasets", "sentence-transformers", "scikit-learn")


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_package(module: str, because: str, extra: str | None = None) -> None:
    """Refuse what needs a package that is not installed; ``extra``: the extra that brings it, and what else is needed.

    Raises:
        ConfigError: names the package, and what to install.
    """
    if importlib.util.find_spec(module) is None:
        name = module.replace("_", "-")
        alone = f"{name} --no-build-isolation" if module == "flash_attn" else name  # its build reads torch's version
        wanted = f"'judgetrain[{extra}]'" if extra else alone
        raise ConfigError(f"{because}: the package {name} is not installed; pip install {wanted}")


def versions() -> dict[str, str]:
    """The installed versions of :data:`PACKAGES`; those that are not installed are left out."""
    return {package: found for package in PACKAGES if (found := version_of(package))}
