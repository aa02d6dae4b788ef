"""The replies of a row: the text of each response that is judged, without what its model thought."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.data.cells import RowError, as_row_error, list_in
from judgetrain.data.rows.columns import Columns
from judgetrain.messages import are_messages, replied, role_texts, with_empty_end
from judgetrain.schema import Dialogue


class ReplyReader:
    """Reads the responses of a row. Its methods raise a RowError that says what is missing or wrong.

    Args:
        columns: of the source's rows.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.thoughts: Counter[str] = Counter()
        """Counts of the responses that held ``some`` thoughts, and of those that held nothing else (``all``)."""

    def response(self, row: Mapping[str, Any], field: str) -> str:
        """Return the text of a response; a cell that is there and holds nothing is a response without text."""
        reply = self.reply(self._columns.value(row, field))
        if isinstance(reply, str):
            return reply
        # Whoever was asked and gave nothing loses as with an empty text; only a column that is missing is a fault.
        if reply is None and self._columns.has_column(row, field):
            return ""
        return self._columns.text(row, field)

    def reply(self, response: Any) -> Any:
        """Return the text that is judged: that of a conversation is its last reply; other values come back as they are.

        What its model thought before is no part of it. A text that is JSON is an answer like any other, not a
        conversation.
        """
        with as_row_error("wrong_message"):
            reply = replied(response)
        if not isinstance(reply, str):
            return response
        count_thoughts(response, reply, self.thoughts)
        return reply

    def check_conversation(self, response: Any, field: str, dialogue: Dialogue, in_text: bool = False) -> None:
        """Check that a response which is a whole conversation is one with the row's own turns before its reply.

        Args:
            response: the cell.
            field: of the response, for messages.
            dialogue: what the response is judged in.
            in_text: the row's lists may stand in cells of text.

        Raises:
            RowError: it has other turns of the user or, before its reply, of the assistant. It would be judged as an
                answer to what it does not answer.
        """
        turns = response
        if in_text:
            turns = list_in(response)
        if not isinstance(turns, list) or not turns or not are_messages(turns):
            return
        with as_row_error("wrong_message", f"field {field}: "):
            spoken = role_texts(with_empty_end(turns))
        before = spoken
        # All that comes after the user's last message is the reply.
        while before and before[-1][0] == "assistant":
            before = before[:-1]
        # Of a reply alone there is nothing to compare, and a conversation without one is no response.
        if not before or len(before) == len(spoken):
            return
        # Blanks make no other turn. Rows are counted by reason, so that each role has one.
        for role, reason in (("user", "other_prompt"), ("assistant", "other_turns")):
            own_turns = [" ".join(text.split()) for speaker, text in before if speaker == role]
            turns_of_row = [" ".join(turn.content.split()) for turn in dialogue.messages if turn.role == role]
            if own_turns != turns_of_row:
                raise RowError(
                    reason,
                    f"field {field}: a conversation whose turns of the {role} are not those of the row's own prompt",
                )

    def unlisted(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row whose query and responses are lists of one text each, also as JSON, with these texts instead.

        Published conversations hold an entry a turn. Any other row comes back as it is.
        """
        lists: dict[str, list[Any]] = {}
        for field in ("query", "response_a", "response_b"):
            column = self._columns.column(row, field)
            if column is None:
                return row
            texts = list_in(row.get(column))
            if texts is None:
                return row
            # A response may be a conversation, of which the last reply is judged.
            if field != "query" and texts and are_messages(texts):
                texts = [self.reply(texts)]
            if not all(text is None or isinstance(text, str) for text in texts):
                return row
            lists[column] = texts

        # Lists of different lengths are no turns of one conversation.
        lengths = {len(texts) for texts in lists.values()}
        if len(lengths) > 1:
            return row
        turns = lengths.pop()
        if turns != 1:
            raise RowError(
                "several_turns", f"query and responses are lists of {amount(turns, 'turn')}; expected a text each"
            )
        return {**row, **{column: texts[0] for column, texts in lists.items()}}


def count_thoughts(response: Any, reply: Any, thoughts: Counter[str]) -> None:
    """Count a text whose model's thoughts were left out.

    Args:
        response: as it was read.
        reply: what a reader is shown of it.
        thoughts: ``some`` of the texts hold an answer, too, and ``all`` nothing else.
    """
    if not isinstance(response, str) or reply == response:
        return
    if reply.strip():
        thoughts["some"] += 1
    else:
        thoughts["all"] += 1


def thoughts_sentence(name: str, thoughts: Mapping[str, int]) -> str:
    """Return the line about responses that hold what their model thought.

    Args:
        name: of the source.
        thoughts: how many held ``some``, and ``all`` how many held nothing else.
    """
    line = (
        f"{name}: {amount(sum(thoughts.values()), 'response')} {agree(sum(thoughts.values()), 'hold')} what their "
        "model thought (as <think>), or frames around the answer, which is left out"
    )
    if thoughts.get("all"):
        line += f"; {thoughts['all']} of them hold nothing else, and are empty"
    return line
