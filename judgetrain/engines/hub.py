"""Models on the Hugging Face Hub: their ids, the commit that an id stands for, and what a repository holds."""

from contextlib import suppress
from functools import cache
from pathlib import Path

from judgetrain.errors import EngineError

SECONDS = 10.0
"""How long the Hub may take to answer."""
MARKS = "config.json", "modules.json"
"""Of which a model has one: the second where an encoder is no Transformers model, as static embeddings."""


def looks_local(path: str) -> bool:
    """Whether a model path can only be a local one: Hub ids are NAME or OWNER/NAME."""
    return path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith((".gguf", "/"))


def hub_id(path: str) -> tuple[str, str | None]:
    """A repository's id on the Hub and the revision that may stand behind it, as in ``OWNER/NAME:v1``."""
    name, _, revision = path.partition(":")
    return name, revision or None


@cache
def commit_of(path: str) -> str | None:
    """The commit that a Hub id (``OWNER/NAME``, ``OWNER/NAME:REVISION``) stands for during this process.

    It is the Hub's word, else the cache's; None where neither knows the id. The cache remembers it, so that the same
    model is found without a network.
    """
    from huggingface_hub import errors, hf_hub_download

    name, revision = hub_id(path)
    for file in MARKS:
        with suppress(*_no_network(errors.HFValidationError)):
            return Path(hf_hub_download(name, file, revision=revision, etag_timeout=SECONDS)).parent.name
    return None


def check_on_hub(path: str, revision: str | None, file: str) -> list[str] | None:
    """The names of a repository's files on the Hub; None where only the cache is asked, in which ``file`` has to be
    (EngineError: no such repository or revision, no access to it, or no network and nothing in the cache)."""
    from huggingface_hub import HfApi, constants, errors, try_to_load_from_cache

    try:
        cached = isinstance(try_to_load_from_cache(path, file, revision=revision), str)
        if constants.is_offline_mode():
            if not cached:
                raise EngineError("HF_HUB_OFFLINE is set, and the cache lacks it: unset that, or give a directory")
            return None
        found = HfApi(endpoint=constants.ENDPOINT).model_info(path, revision=revision, timeout=SECONDS)
    except _no_network(errors.HFValidationError) as error:
        refused = (errors.HFValidationError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
        if isinstance(error, refused):  # a gated repository is one that is not found, as long as its terms are not
            what = f"accept its terms at {constants.ENDPOINT}/{path} and set HF_TOKEN, or give a local directory"
            why = f"the Hugging Face Hub does not give it ({_why(error)})"
            raise EngineError(f"{why}: check name and revision, {what}") from error
        if cached:
            return None
        raise EngineError(f"the Hugging Face Hub cannot be reached ({_why(error)}); give a local directory") from error
    return [sibling.rfilename for sibling in found.siblings or ()]


def snapshot(path: str, file: str, revision: str | None = None) -> Path:
    """The directory of a model: the path itself, or what the Hub has under this id, fetched into the cache
    (EngineError: there is none, or it cannot be had; says why).

    An id may have a revision behind it. ``file``: that the repository has to hold, as ``config.json``; ``revision``
    None: the commit that fingerprints have (:func:`commit_of`).
    """
    from huggingface_hub import constants, snapshot_download

    directory = Path(path).expanduser()
    if directory.is_dir():
        return directory
    if looks_local(path):
        raise EngineError(f"{path}: there is no such directory; give a model's, or its id on the Hub (OWNER/NAME)")
    name, tag = hub_id(path)
    revision = revision or commit_of(path) or tag
    try:
        names = check_on_hub(name, revision, file)
        if names is not None and file not in names:
            raise EngineError(f"the repository on the Hugging Face Hub holds no {file}")
        offline = names is None or constants.is_offline_mode()
        return Path(snapshot_download(name, revision=revision, local_files_only=offline))
    except EngineError as error:
        raise EngineError(f"{path}: there is no such directory, and of the Hub: {error}") from error
    except _no_network() as error:
        raise EngineError(f"{path}: the Hugging Face Hub did not give all of it ({_why(error)}); try again") from error


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:150] or type(error).__name__


def _no_network(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What the Hub's client raises where there is no answer: of whichever HTTP library it uses, and of the system."""
    from huggingface_hub.errors import HfHubHTTPError

    return *others, HfHubHTTPError, OSError, *(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")
