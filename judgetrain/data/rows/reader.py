"""What a row of a source holds: a dialogue, a comparison, responses to be scored, or a response with its labels."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.data.cells import EMPTY, NO_LABEL, NumberScale, RowError, list_in, name_text
from judgetrain.data.config import SourceConfig
from judgetrain.data.labelled import OVERALL, LabelledResponse, Scale
from judgetrain.data.rows.columns import EXCEL_MOST, Columns
from judgetrain.data.rows.dialogue import DialogueReader
from judgetrain.data.rows.labels import LabelReader, counts_text
from judgetrain.data.rows.replies import ReplyReader, thoughts_sentence
from judgetrain.rubrics import Rubric, criterion_key, label_of_criterion, label_of_line, weighted, without_rounding
from judgetrain.schema import Candidates, Comparison, Dialogue, Rating


class RowReader:
    """Reads the rows of one source, whatever their published shape.

    Every method that reads a row raises a RowError that says what is missing or wrong in it.

    Args:
        source: the columns (``fields``), the meaning of labels (``labels``) and the shape (``format``).
        key: the configuration key of the source, for messages.
        numbers: returns what the numbers of its column of ratings are read as, by criterion, where ``labels`` does not
            say so.

    Attributes:
        columns: finds the cells of a row, and says which shape the row has.
        labels: reads the labels of rows.

    Raises:
        ConfigError: ``fields`` names an unknown field, or ``labels`` gives a label a meaning that is not allowed.
    """

    def __init__(
        self, source: SourceConfig, key: str = "source", numbers: Callable[[], Mapping[str, NumberScale]] = dict
    ) -> None:
        self._source = source
        self._key = key
        no_labels = {label for label, meaning in source.labels.items() if meaning == NO_LABEL}
        self.columns = Columns(source.fields, key, no_labels)
        self.labels = LabelReader(source.labels, key, self.columns, numbers)
        self._dialogues = DialogueReader(source, self.columns)
        self._replies = ReplyReader(self.columns)
        # Rows whose messages end with an answer that is none of their responses.
        self._with_other_answer = 0

    def dialogue(self, row: Any, number: int) -> Dialogue:
        """Return the dialogue of a row, as :meth:`DialogueReader.dialogue` says."""
        return self._dialogues.dialogue(row, number)

    def id_of(self, row: Mapping[str, Any], number: int) -> str:
        """Return the source's name and the row's id, or its number where it has no id."""
        return self._dialogues.id_of(row, number)

    def comparison(self, row: Any, number: int, labelled: bool | None) -> Comparison:
        """Return the comparison of a row.

        Args:
            row: a mapping from columns to cells.
            number: the number of the row in its source, which stands in for an id.
            labelled: True requires a label, None reads one where the row has it, False leaves it unread.
        """
        try:
            return self._comparison(row, number, labelled)
        except RowError as error:
            if error.reason != "missing_field":
                raise
            # The first column that is missing stopped the reader; the others are named with it.
            try:
                self.columns.check(row, labelled=bool(labelled))
            except RowError as every_column:
                raise RowError(error.reason, str(every_column)) from error
            raise

    def _comparison(self, row: Any, number: int, labelled: bool | None) -> Comparison:
        """Return the comparison of a row. Arguments as of :meth:`comparison`."""
        as_written = row
        if isinstance(row, Mapping):
            # Before anything else is read: the query itself may stand in such a list.
            row = self._replies.unlisted(row)
        dialogue, rubric, answer = self._dialogues.with_rubric(row, number)
        for field in ("response_a", "response_b"):
            response = self.columns.value(as_written, field)
            self._replies.check_conversation(response, field, dialogue, in_text=row is not as_written)
        response_a = self._replies.response(row, "response_a")
        response_b = self._replies.response(row, "response_b")
        self._note_answer(answer, [response_a, response_b])
        if labelled is None:
            # A benchmark may have some rows without a label, which are judged and not counted.
            labelled = self.labels.written(row) not in EMPTY
        model_a = name_text(self.columns.value(row, "model_a"))
        model_b = name_text(self.columns.value(row, "model_b"))
        group = name_text(self.columns.value(row, "group")) or None
        label = None
        if labelled:
            label = self.labels.verdict(row)
        return Comparison(
            id=dialogue.id,
            dialogue=dialogue,
            response_a=response_a,
            response_b=response_b,
            model_a=model_a,
            model_b=model_b,
            group=group,
            label=label,
            rubric=rubric,
        )

    def candidates(self, row: Any, number: int) -> Candidates:
        """Return the responses of a row that holds one, or a list of them; each is to be scored by itself."""
        dialogue, rubric, answer = self._dialogues.with_rubric(row, number)
        cell = self.columns.value(row, "responses")
        if cell is None:
            written = [self.columns.value(row, "response")]
            responses: list[Any] | None = [self._replies.response(row, "response")]
        else:
            responses = list_in(cell)
            written = responses or []
        # Of several responses some may be empty; they are judged as such.
        for response in written:
            self._replies.check_conversation(response, "response", dialogue)
        texts = tuple(self._replies.reply(response) for response in responses or ())
        if not texts or not all(isinstance(text, str) for text in texts):
            raise RowError("wrong_type", f"expected a list of texts in field responses, found {cell!r:.80}")
        self._note_answer(answer, texts)
        return Candidates(dialogue.id, dialogue, texts, rubric)

    def rated(self, row: Any, number: int) -> Comparison:
        """Return the only response of a row with the rating that its label gives it; there is no second response.

        Several annotators' labels are one rating, their mean. Where labels are of single criteria alone, the response
        as a whole is rated by their mean, weighted where the row brings these criteria.
        """
        dialogue, rubric, answer = self._dialogues.with_rubric(row, number)
        self._replies.check_conversation(self.columns.value(row, "response"), "response", dialogue)
        response = self._replies.response(row, "response")
        if not response.strip():
            raise RowError("empty_response", "expected a response, found only white space")
        self._note_answer(answer, [response])
        rating = self._rating(row, rubric)
        return Comparison(
            id=dialogue.id,
            dialogue=dialogue,
            response_a=response,
            response_b="",
            rating_a=rating,
            model_a=name_text(self.columns.value(row, "model_a")),
            group=name_text(self.columns.value(row, "group")) or None,
            rubric=rubric,
        )

    def _rating(self, row: Mapping[str, Any], rubric: Rubric | None) -> Rating:
        """Return what people say of a row's only response, as a whole and by criterion; ``rubric``: the row's own."""
        scores = {}
        for name, votes in self.labels.votes(row).items():
            if votes:
                # Rounded where sums of floats differ in their last digits, so that equal ratings are equal.
                scores[name] = without_rounding(fmean(votes))
        rating = rating_of(scores, rubric, self.columns.optional_text(row, "rationale"))
        if rating is None:
            raise RowError("no_label", f"label {self.columns.rating(row)!r} says nothing of the response")
        return rating

    def labelled(self, row: Any, number: int) -> LabelledResponse:
        """Return the only response of a row with its labels; a row without any is one that nobody labelled."""
        dialogue, rubric, answer = self._dialogues.with_rubric(row, number)
        self._replies.check_conversation(self.columns.value(row, "response"), "response", dialogue)
        response = self._replies.response(row, "response")
        self._note_answer(answer, [response])
        return LabelledResponse(
            candidates=Candidates(dialogue.id, dialogue, (response,), rubric),
            votes=self.labels.votes(row),
            model=name_text(self.columns.value(row, "model_a")),
            group=name_text(self.columns.value(row, "group")) or None,
        )

    def _note_answer(self, answer: str | None, responses: Sequence[str]) -> None:
        """Count a row whose messages end with an answer that is none of its responses, and so is not read."""
        if answer is None or not answer.strip():
            return
        if all(response.strip() != answer.strip() for response in responses):
            self._with_other_answer += 1

    def scales(self) -> dict[str, Scale]:
        """Return the scale of the labels that were read, by criterion."""
        return self.labels.scales()

    def tell(self, say: Callable[[str], object]) -> None:
        """Say how many labels had no meaning, and which columns nothing was read from; nothing where all is well.

        Args:
            say: prints one line.
        """
        name = self._source.name
        for message in self.labels.messages():
            say(f"{name}: {message}")
        if self._replies.thoughts:
            say(thoughts_sentence(name, self._replies.thoughts))
        if self._with_other_answer:
            count = self._with_other_answer
            say(
                f"{name}: the messages of {amount(count, 'row')} end with an answer of the assistant that is none of "
                f"the responses in their columns, and {agree(count, 'are')} judged without it: give it as a response, "
                "or as the reference, if it is one"
            )
        cut = self.columns.cut_by_excel
        if cut:
            count = cut.total()
            say(
                f"{name}: {amount(count, 'text')} {agree(count, 'have')} exactly {EXCEL_MOST:,} characters, "
                f"where Excel cuts a cell ({counts_text(cut.most_common())}): what is judged may lack its end; give a "
                "file that Excel did not write"
            )
        for message in self.columns.mixed():
            say(f"{name}: {message}")
        # A column that was meant for a field, under a name of its own, shows up here.
        unused = self.columns.unused()
        if unused:
            say(f"{name}: columns that are not used (rows): {counts_text(unused)}")


def rating_of(scores: Mapping[str, float], rubric: Rubric | None, reason: str | None) -> Rating | None:
    """Return the rating that labels of a response make; None without any.

    Args:
        scores: the labels, 0 to 1, by criterion; that of the response as a whole stands under :data:`OVERALL`.
        rubric: the row's own criteria, by whose weights labels of criteria are one where there is none of the whole.
        reason: that people give.
    """
    by_criterion = {criterion_key(name): score for name, score in scores.items() if name != OVERALL}
    whole = scores.get(OVERALL)
    score = whole
    if score is None:
        score = _mean_by(by_criterion, rubric)
    if score is None:
        return None
    return Rating(score, reason, by_criterion, whole=whole is not None)


def _mean_by(scores: Mapping[str, float], rubric: Rubric | None) -> float | None:
    """Return the mean of scores by criterion, 0 to 1, by a rubric's weights; None without any.

    Without a rubric, or where it has none of these criteria, all count alike.
    """
    shares = []
    for criterion in rubric.criteria if rubric else ():
        label = label_of_criterion(criterion.name, criterion.text, scores) or label_of_line(criterion.line, scores)
        if label is not None:
            shares.append((criterion.weight, scores[label]))
    return weighted(shares or [(1.0, score) for score in scores.values()])
