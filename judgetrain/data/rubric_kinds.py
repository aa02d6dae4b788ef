"""Rubrics by kind of query: queries that are typical of a kind decide which criteria another query is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from judgetrain.errors import DataError
from judgetrain.rubrics import Rubric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sklearn.feature_extraction.text import TfidfVectorizer

NEAREST = 3
"""Typical queries of a kind that a query is compared with: those that it is most like."""


@dataclass(frozen=True)
class RubricKind:
    """A kind of query, and what responses to such queries are judged by.

    Args:
        name: of the kind, unique in its rubric.
        queries: that are typical of the kind.
        rubric: the criteria.
    """

    name: str
    queries: tuple[str, ...]
    rubric: Rubric


@dataclass(frozen=True)
class RubricByKind(Rubric):
    """A rubric that has other criteria for each kind of query.

    Args:
        criteria: for queries that share no word with a typical query of any kind.
        kinds: the kinds of query.

    Raises:
        DataError: there is no kind, two have the same name, or one has no typical query.
    """

    kinds: tuple[RubricKind, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kinds:
            raise DataError("kinds: expected a kind of query at least, found none")
        names = [kind.name for kind in self.kinds]
        for kind in self.kinds:
            if names.count(kind.name) > 1:
                raise DataError(f"kinds: two kinds of query are called {kind.name!r}")
            if not any(query.strip() for query in kind.queries):
                raise DataError(f"kind {kind.name!r}: queries: expected a typical query at least, found none")

    def for_query(self, query: str) -> Rubric:
        """Return the criteria of the kind that a query is most like."""
        kind = self.kind_of(query)
        if kind is None:
            return Rubric(self.criteria)
        return kind.rubric

    def kind_of(self, query: str) -> RubricKind | None:
        """Return the kind whose typical queries share most words with a query; None where none shares any.

        Words and pairs of words count by TF-IDF over all typical queries. A kind is as near as the mean cosine of the
        :data:`NEAREST` of its typical queries that are nearest.
        """
        vectors = self._vectorizer.transform([query])
        cosines: NDArray[np.float64] = (self._typical @ vectors.T).toarray()[:, 0]
        likeness = []
        place = 0
        for kind in self.kinds:
            # The mean of a few: one typical query may be like by chance, and all of a broad kind never are.
            of_kind = sorted(cosines[place : place + len(kind.queries)], reverse=True)[:NEAREST]
            likeness.append(sum(of_kind) / len(of_kind))
            place += len(kind.queries)
        most = max(likeness)
        if most <= 0:
            return None
        return self.kinds[likeness.index(most)]

    @property
    def content(self) -> list[dict[str, Any]]:
        """Return the criteria, and after them the kinds, as JSON values."""
        return [*super().content, *map(asdict, self.kinds)]

    @cached_property
    def _vectorizer(self) -> TfidfVectorizer:
        # Slow to import, and needed only where a query is looked at.
        from sklearn.feature_extraction.text import TfidfVectorizer

        queries = [query for kind in self.kinds for query in kind.queries]
        # Single letters and signs count, too: a query may be a formula.
        return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]").fit(queries)

    @cached_property
    def _typical(self) -> Any:
        return self._vectorizer.transform([query for kind in self.kinds for query in kind.queries])


def holds_kinds(content: Any) -> bool:
    """Return whether the content of a file is a rubric by kinds of query."""
    return isinstance(content, Mapping) and "kinds" in content


def check_columns(raw: Mapping[str, Any], columns: Sequence[str], where: str) -> None:
    """Refuse (DataError) what a rubric by kinds does not read, and what it lacks; ``where`` opens the message."""
    unknown = [str(column) for column in raw if column not in columns]
    if unknown:
        raise DataError(f"{where}: {', '.join(map(repr, unknown))}: nothing reads it; there are {', '.join(columns)}")
    missing = [column for column in columns if raw.get(column) is None]
    if missing:
        raise DataError(f"{where}: {', '.join(missing)}: expected, and not there")
