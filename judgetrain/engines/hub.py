"""Find models on the Hugging Face Hub: ids, the commit that an id stands for, and the files of a repository."""

import glob
from contextlib import suppress
from functools import cache
from pathlib import Path

from judgetrain.amounts import amount
from judgetrain.errors import EngineError

SECONDS = 10.0
"""The most seconds that the Hub may take to answer."""
MARKS = ("config.json", "modules.json")
"""Files by which a model is known; an encoder that is no Transformers model (static embeddings) has the second."""


def looks_local(path: str) -> bool:
    """Return whether a model's path can only be a local one: ids on the Hub are NAME or OWNER/NAME.

    ``outputs/judge`` is where runs leave their judges, and no owner's.
    """
    return path.startswith((".", "/", "~", "outputs/")) or path.count("/") > 1 or path.endswith((".gguf", "/"))


def hub_id(path: str) -> tuple[str, str | None]:
    """Return a repository's id on the Hub, and the revision that may stand behind it, as in ``OWNER/NAME:v1``."""
    name, _, revision = path.partition(":")
    return name, revision or None


_reached: set[str] = set()
"""The endpoints that have answered this process."""


def is_reachable() -> bool:
    """Return whether the Hub answers, whatever it says; it is asked once, and at once where there is no network.

    The Hub's client would try again for the better part of a minute before it says so.
    """
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode():
        return False
    endpoint = constants.ENDPOINT
    if endpoint not in _reached:
        try:
            get_session().head(endpoint, timeout=SECONDS)
        except _no_network():
            # Not remembered: the network may be back in a moment.
            return False
        _reached.add(endpoint)
    return True


@cache
def commit_of(path: str) -> str | None:
    """Return the commit that a Hub id (``OWNER/NAME``, ``OWNER/NAME:REVISION``) stands for during this process.

    The Hub decides, else its cache on this machine; None where neither knows the id. The cache remembers the commit, so
    that the same model is found without a network.
    """
    from huggingface_hub import errors, hf_hub_download

    name, revision = hub_id(path)
    # Where nothing answers, the cache alone is read.
    is_local = not is_reachable()
    # The directory of a file in the cache is named by the commit, also without a network.
    for file in MARKS:
        with suppress(*_no_network(errors.HFValidationError)):
            downloaded = hf_hub_download(name, file, revision=revision, etag_timeout=SECONDS, local_files_only=is_local)
            return Path(downloaded).parent.name
    return None


def check_on_hub(path: str, revision: str | None, file: str) -> list[str] | None:
    """Return the names of a repository's files on the Hub; None where only the cache can be read.

    Args:
        path: the repository's id.
        revision: the revision; None: the newest.
        file: has to be in the cache where only that can be read.

    Raises:
        EngineError: there is no such repository or revision, no access to it, or no network and nothing in the cache.
    """
    from huggingface_hub import HfApi, constants, errors, try_to_load_from_cache

    try:
        # The path of the file in the cache; any other answer says that it is not there.
        cached = isinstance(try_to_load_from_cache(path, file, revision=revision), str)
        if constants.is_offline_mode():
            if not cached:
                raise EngineError("HF_HUB_OFFLINE is set, and the cache lacks it: unset that, or give a directory")
            return None
        model = HfApi(endpoint=constants.ENDPOINT).model_info(path, revision=revision, timeout=SECONDS)
    except _no_network(errors.HFValidationError) as error:
        # A gated repository is not found as long as its terms are not accepted.
        refusals = (errors.HFValidationError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
        if isinstance(error, refusals):
            raise EngineError(
                f"the Hugging Face Hub does not give it ({_message(error)}): check name and revision, accept its terms "
                f"at {constants.ENDPOINT}/{path} and set HF_TOKEN, or give a local directory"
            ) from error
        if cached:
            return None
        raise EngineError(
            f"the Hugging Face Hub cannot be reached ({_message(error)}); give a local directory"
        ) from error
    return [sibling.rfilename for sibling in model.siblings or ()]


def snapshot(path: str, file: str, revision: str | None = None) -> Path:
    """Return the directory of a model: the path itself, or the Hub's files, which are fetched into the cache.

    Args:
        path: a directory, or an id on the Hub, which may have a revision behind it.
        file: the repository has to hold it, as ``config.json``.
        revision: the revision; None: the commit in fingerprints (:func:`commit_of`).

    Raises:
        EngineError: there is no such model, or it cannot be fetched; says why.
    """
    from huggingface_hub import constants, snapshot_download

    directory = Path(path).expanduser()
    if directory.is_dir():
        return directory
    matches = glob.glob(str(directory)) if glob.has_magic(path) else []
    if len(matches) > 1:
        first, second, *_ = sorted(matches)
        raise EngineError(f"{path}: it matches {amount(len(matches), 'path')}, as {first} and {second}: name one")
    if looks_local(path):
        raise EngineError(f"{path}: there is no such directory; give a model's, or its id on the Hub (OWNER/NAME)")
    name, tag = hub_id(path)
    # The commit first, so that what is loaded is what fingerprints hold.
    revision = revision or commit_of(path) or tag
    try:
        names = check_on_hub(name, revision, file)
        if names is not None and file not in names:
            raise EngineError(f"the repository on the Hugging Face Hub holds no {file}")
        # Where the list of files could not be had, the files cannot be, either.
        offline = names is None or constants.is_offline_mode()
        return Path(snapshot_download(name, revision=revision, local_files_only=offline))
    except EngineError as error:
        raise EngineError(f"{path}: there is no such directory, and of the Hub: {error}") from error
    except _no_network() as error:
        raise EngineError(
            f"{path}: the Hugging Face Hub did not give all of it ({_message(error)}); try again"
        ) from error


def _message(error: Exception) -> str:
    """Return an error's message in one line of 150 characters at most."""
    return " ".join(str(error).split())[:150] or type(error).__name__


def _no_network(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors that the Hub's client raises where there is no answer, and some others.

    They are those of the HTTP library that the client uses, which differs by its version, and of the system.
    """
    from huggingface_hub.errors import HfHubHTTPError

    of_library = [base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError"]
    return (*others, HfHubHTTPError, OSError, *of_library)
