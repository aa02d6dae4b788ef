"""Read a server's answers: chat completions, however servers fill in their parts, JSON of a schema, and refusals."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.amounts import amount
from judgetrain.engines import base
from judgetrain.engines.answers import counted_tokens, prompt_tokens, writable
from judgetrain.engines.openai.cut_prompts import REMEDY, is_cut_prompt, words_in

FRAME = 100_000
"""The most tokens that a server may add to a prompt (its instructions) or think; larger counts are not believed."""
CHARACTERS = 128
"""The most characters of a text for each token that was allowed; tokens of common vocabularies hold fewer."""
ENDED = ("", "none", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed")
"""Finish reasons by which servers say that a reply reached its end, or say nothing; with any other, it may be cut."""
OUT_OF_TOKENS = ("length", "max_tokens", "max_output_tokens", "max_completion_tokens")
"""Finish reasons by which servers say that a reply reached the limit on its length."""
SHOWN_PARTS = (None, "text", "output_text")
"""Types of a message's parts that are part of the answer; others hold thoughts, refusals or calls."""
ROUNDING = 0.01
"""The most by which a log-probability may be above 0."""
MOST_TOKENS = 10**9
"""The most tokens of a prompt that are believed where its text does not bound them."""
NAME = 200
"""The most characters of a model's name that are kept."""


def read_completion(answer: Mapping[str, Any], request: base.Request) -> base.Completion:
    """Return the completion in a parsed answer.

    An answer without content is a completion too: its ``finish_reason`` is ``reasoning_alone``, or ``no_content`` after
    a refusal or filter, and ``error`` says why. So is one to a prompt that the server has cut, with ``too_long``. Token
    counts that the server leaves out, or that cannot be right, are estimated on the safe side.

    Args:
        answer: the JSON of the answer.
        request: what was asked.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: the answer is no chat completion.
    """
    # Filters leave the list empty, or a choice or its message out (Gemini, Azure, gateways).
    choice: Any = _first_choice(answer["choices"])
    if choice is None:
        choice = {}
    # Some write it in capitals (Gemini, Cohere).
    finish = str(choice.get("finish_reason")).lower()
    message = choice.get("message")
    if message is None:
        message = {}
    content = _text(message.get("content"))
    # Counted whatever the answer holds, since it is charged.
    is_cut = finish in OUT_OF_TOKENS
    counts = _counts(answer.get("usage"), request, _all_text(message, content), is_cut)
    counts["model"] = writable(str(answer.get("model") or ""))[:NAME]

    # Before the text is looked at: an answer to half of a prompt is about another comparison.
    counts["read_tokens"] = _read_tokens(answer.get("usage"))
    if is_cut_prompt(counts["read_tokens"], request):
        return base.Completion(
            finish_reason="too_long",
            error=f"the server read {amount(counts['read_tokens'], 'token')} of a prompt of some "
            f"{amount(words_in(request), 'word')}, so it cut the prompt: {REMEDY}",
            **counts,
        )
    has_text = content is not None and not content.isspace() and content != ""
    is_withheld = bool(_refusal(message)) or "filter" in finish
    # Servers that take the reasoning apart leave the line ends behind it.
    if _reasoning(message) and not has_text and not is_withheld:
        return base.Completion(finish_reason="reasoning_alone", error=_no_content_reason(choice, finish), **counts)
    # A model may say nothing and end; what says why there is nothing is another thing.
    has_reason = is_withheld or finish not in ENDED
    if content is None or (has_reason and not has_text):
        return base.Completion(finish_reason="no_content", error=_no_content_reason(choice, finish), **counts)

    sampling = request.sampling
    text = writable(content)
    reason: base.FinishReason = "length"
    if finish in ENDED:
        reason = "stop"
    longest = CHARACTERS * sampling.max_new_tokens
    if len(text) > longest:
        # The server ignores the limit.
        text = text[:longest]
        reason = "length"
    text_before_stop = base.cut_at_stop(text, sampling.stop)
    if text_before_stop is not None:
        # The server returns the stop string too, or ignores it.
        text = text_before_stop
        reason = "stop"
    return base.Completion(text=text, finish_reason=reason, choices=_choices(choice, sampling, text), **counts)


def _first_choice(choices: Any) -> Any:
    """Return the choice that is numbered first, wherever it stands in the list; None where there is none.

    One is asked for. A server that sends several numbers them by ``index``, in any order. Where one has no number, the
    order of the list counts.

    Raises:
        KeyError, TypeError: ``choices`` is no list.
    """
    if choices is None or choices == []:
        return None
    numbers: list[int] = []
    for choice in choices:
        number = None
        if isinstance(choice, Mapping):
            number = choice.get("index")
        if type(number) is not int:
            return choices[0]
        numbers.append(number)
    return choices[numbers.index(min(numbers))]


VARIANTS = frozenset(
    "nano micro mini tiny small medium large lite light flash air turbo plus pro max ultra codex distill "
    "coder math vision audio realtime search".split()
)
"""Words by which makers tell the models of one family apart."""
_VERSION = re.compile(r"[-_][0-9]{1,2}(?![0-9a-z])")
"""A further number of a version, behind the first one."""


def is_other_model(answering: str, requested: str) -> bool:
    """Return whether a server says that another model answered than the requested one.

    It may name the same model more exactly (``gpt-5.4-2026-03-05``), without its provider, or by its file. A name that
    goes on with another version (``gpt-4.1``), size or kind (``gpt-5-mini``) is another model's.

    Args:
        answering: the name in the answer; empty where the server gives none.
        requested: the name in the request.
    """
    # Either may be the fuller name, so that one has to stand in the other.
    shorter, longer = sorted((answering.strip().lower(), requested.strip().lower()), key=len)
    if not shorter:
        # Many servers name no model.
        return False
    return not any(_names_the_same(name, longer) for name in (shorter, shorter.rpartition("/")[2]))


def _names_the_same(name: str, longer: str) -> bool:
    """Return whether a longer name holds a model's name as a whole, and nothing that tells models apart."""
    # Neither "gpt-4o" nor "gpt-4.1" holds "gpt-4", and "my-gpt-4" does.
    match = re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9]|\.[0-9])", longer)
    if not name or match is None:
        return False
    # "claude-sonnet-4-5" is another version than "claude-sonnet-4"; longer numbers are dates and revisions.
    if name[-1].isdigit() and _VERSION.match(longer, match.end()):
        return False
    rest = re.findall(r"[a-z]+", longer[match.end() :])
    return VARIANTS.isdisjoint(rest)


def _text(content: Any) -> str | None:
    """Return the text of a message, also where it comes in parts; None where it has none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") not in SHOWN_PARTS:
            continue
        if isinstance(part.get("text"), str):
            texts.append(part["text"])
    if not texts:
        return None
    return "".join(texts)


def _reasoning(message: Mapping[str, Any]) -> str:
    """Return the model's reasoning, as far as the server shows it apart from the content."""
    texts = [str(message.get(name) or "") for name in ("reasoning_content", "reasoning", "thinking")]
    # Parts of another type than text, and OpenRouter's list.
    for name in ("content", "reasoning_details"):
        parts = message.get(name)
        if not isinstance(parts, list):
            continue
        for part in parts:
            if isinstance(part, Mapping) and str(part.get("type")).startswith(("reasoning", "thinking")):
                texts.append(str(part.get("text") or part.get("thinking") or part.get("summary") or ""))
    return " ".join(texts).strip()


def _refusal(message: Mapping[str, Any]) -> str:
    """Return the words in which a model refused to answer, on one line; empty where it did not."""
    refusal = message.get("refusal")
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if isinstance(part, Mapping) and part.get("type") == "refusal":
                refusal = refusal or part.get("refusal")
    if not isinstance(refusal, str):
        return ""
    return " ".join(refusal.split())


def _all_text(message: Mapping[str, Any], content: str | None) -> str:
    """Return everything that the model generated, as far as the server shows it: content, refusal and reasoning."""
    return f"{content or ''}{message.get('refusal') or ''} {_reasoning(message)}"


def _no_content_reason(choice: Mapping[str, Any], finish: str) -> str:
    """Return a message that says why an answer has no content.

    Args:
        choice: what the server answered.
        finish: its finish reason, in small letters.
    """
    message = choice.get("message") or {}
    refusal = _refusal(message)
    if refusal:
        return writable(f"the model refused: {refusal[:200]}")
    reason = f"the answer has no content (finish_reason {finish[:40]})"
    error = choice.get("error")
    if finish in OUT_OF_TOKENS:
        reason += ": it ran out of tokens while it was thinking (raise max_new_tokens)"
    elif isinstance(error, Mapping) and error.get("message"):
        reason += f": {' '.join(str(error['message']).split())[:200]}"
    elif message.get("tool_calls"):
        reason += ": the model called a tool in place of answering"
    elif not message or "filter" in finish:
        reason += ": the server's filter seems to have taken it"
    elif _reasoning(message):
        reason += (
            ": all of it stands in the reasoning; start the server without its reasoning parser, or have the model not "
            "think"
        )
    return writable(reason)


def _counts(usage: Any, request: base.Request, text: str, is_cut: bool) -> dict[str, Any]:
    """Return a completion's ``prompt_tokens`` and ``generated_tokens``, and whether one of them is ``estimated``.

    Args:
        usage: the counts that the server reports, if any.
        request: what was asked.
        text: everything that the model generated, as far as the server shows it.
        is_cut: the answer reached ``max_new_tokens``.
    """
    reported: Mapping[str, Any] = {}
    if isinstance(usage, Mapping):
        reported = usage
    sampling = request.sampling

    # A character is four tokens at most, one for each of its bytes: a larger count cannot be right.
    prompt_characters = sum(len(message["content"]) for message in request.messages)
    prompt = _count(reported.get("prompt_tokens"), 1, 4 * prompt_characters + FRAME)
    # Who generated a text generated a token.
    least = 0
    if text.strip():
        least = 1
    most = 4 * max(len(text), sampling.max_new_tokens) + FRAME
    generated = _generated(reported, least, most)

    estimated = prompt is None or generated is None
    if prompt is None:
        prompt = prompt_tokens(request)
    if generated is None:
        # An answer that was cut took all the tokens that it was allowed, of which the text may show few.
        at_least = 1
        if is_cut:
            at_least = sampling.max_new_tokens
        generated = max(counted_tokens(text), at_least)
    return {"prompt_tokens": prompt, "generated_tokens": generated, "estimated": estimated}


def _generated(reported: Mapping[str, Any], least: int, most: int) -> int | None:
    """Return the number of generated tokens that the server charges: the largest that its counts imply, or None.

    Some services count a model's reasoning in ``total_tokens`` or in the details alone (xAI).

    Args:
        reported: the counts by name.
        least: a smaller number is not believed.
        most: a larger number is not believed.
    """
    # Three ways in which services report the same; the largest that can be right is what they charge.
    numbers = [_count(reported.get("completion_tokens"), least, most)]
    total = _count(reported.get("total_tokens"), 0, 2 * most)
    prompt = _count(reported.get("prompt_tokens"), 0, 2 * most)
    if total is not None and prompt is not None:
        numbers.append(_count(total - prompt, least, most))
    details = reported.get("completion_tokens_details")
    if isinstance(details, Mapping):
        numbers.append(_count(details.get("reasoning_tokens"), least, most))
    return max((number for number in numbers if number is not None), default=None)


def _read_tokens(usage: Any) -> int | None:
    """Return how many tokens of a prompt the server says that it read, with those of its cache; None without a count.

    Where a server has those of its cache among the others, they count twice. The number is compared with the fewest
    that a prompt can have.
    """
    if not isinstance(usage, Mapping):
        return None
    reported = _count(usage.get("prompt_tokens"), 1, MOST_TOKENS)
    if reported is None:
        return None
    return reported + _cached(usage)


def _cached(usage: Mapping[str, Any]) -> int:
    """Return the prompt's tokens that stood in the server's cache, or went into it, where it counts them apart.

    Gateways to Claude do so.
    """
    counts = [usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")]
    details = usage.get("prompt_tokens_details")
    if isinstance(details, Mapping):
        counts.append(details.get("cached_tokens"))
    return sum(_count(count, 0, MOST_TOKENS) or 0 for count in counts)


def _count(value: Any, least: int, most: int) -> int | None:
    """Return a reported count as an integer; None where it is no number, or not between two bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # Infinity and NaN are not between the bounds either.
    if not least <= value <= most:
        return None
    return int(value)


def _choices(choice: Mapping[str, Any], sampling: base.Sampling, text: str) -> tuple[base.Choice, ...]:
    """Return the probabilities of candidates; none where the server's report cannot be read."""
    try:
        tokens = []
        for token in (choice.get("logprobs") or {}).get("content") or []:
            # A token may be part of a character, which its text cannot show. Some servers leave the bytes out.
            token_bytes = bytes(token.get("bytes") or token["token"].encode())
            # A token that stands twice is one.
            ranked = dict.fromkeys((other["token"], other["logprob"]) for other in token.get("top_logprobs") or [])
            # The generated one need not be among the likeliest.
            is_ranked = any(text_of_other == token["token"] for text_of_other, _ in ranked)
            if ranked and not is_ranked and token.get("logprob") is not None:
                ranked[token["token"], token["logprob"]] = None
            # Logits, and what is no number, are no log-probabilities; rounding may leave one a little above 0.
            if not all(logprob <= ROUNDING for _, logprob in ranked):
                return ()
            tokens.append((token_bytes, [*ranked]))
        return base.choices_of(tokens, sampling.candidates, text)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return ()


FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
"""The meaning of each HTTP status that holds for all requests."""
UNLIKELY = 12
"""The length in characters from which on no answer holds a key by chance; ``EMPTY``, a common key, is a word."""
SHORT = 60
"""The most characters of an answer that is no completion that are repeated."""
CUT = 4096
"""The bytes of an answer that are looked at to say what it is."""
LONGEST_MESSAGE = 300
"""The most characters of a refusing server's message that are repeated."""

_EMPTY = re.compile(
    r"insufficient[ _-]?(?:quota|balance|credits?|funds)|(?:credit|account) balance|no credits? (?:left|remain)"
    r"|billing[ _](?:hard[ _]limit|not[ _]active)|payment[ _]required|arrearage|overdue[ _-]?payment|in good standing"
    r"|(?:credits?|balance|funds) (?:is |are |has been )?(?:exhausted|depleted|insufficient|used up)|monthly quota",
    re.IGNORECASE,
)
"""Matches the words by which services say that an account has nothing left."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The reason why a request has no answer.

    Args:
        reason: for messages.
        passing: asking again another time may help.
        at_once: asking again right now may help.
        other_form: asking again right now helps, since requests have another form from here on.
        unreachable: there was no connection, which no single request can be the cause of.
    """

    reason: str
    passing: bool = True
    at_once: bool = False
    other_form: bool = False
    unreachable: bool = False


def error_of(content: bytes) -> int | None:
    """Return the status of an error that came with status 200, as some services send them; None for other answers."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    error = _error_in(answer)
    if not error:
        return None

    status = None
    if isinstance(error, Mapping):
        status = error.get("code")
    if isinstance(status, str) and status.isdigit():
        status = int(status)

    # An error without a status counts as the server's own, which may pass.
    if isinstance(status, int) and 400 <= status < 600:
        return status
    return 500


def _error_in(answer: Any) -> Any:
    """Return the error in a parsed answer: its own, or that of its choice (OpenRouter); None where there is none."""
    if not isinstance(answer, Mapping):
        return None
    choices = answer.get("choices")
    if not choices:
        return answer.get("error")
    if not isinstance(choices, list):
        return None
    choice = _first_choice(choices)
    if isinstance(choice, Mapping):
        return choice.get("error")
    return None


_WRAPPED = {
    r"bad_?request_?error|invalid_?request(?:_?error)?|invalid_argument|validation_?exception": 400,
    r"unsupported_?params_?error|context_?window_?exceeded|content_?policy_?violation": 400,
    r"authentication_?error|unauthenticated": 401,
    r"permission_?denied": 403,
    r"unprocessable_?entity": 422,
    r"rate_?limit_?(?:error|exceeded)|too_?many_?requests": 429,
}
"""The statuses that services' names for errors stand for."""
_WRAPPED_STATUS = r"400|401|403|404|413|422|429"
"""The statuses that a service refuses a request or its rate by; others of a gateway's (408, 499) may pass."""
_WRAPPED_CODE = re.compile(rf"(?:error code|status code|status_code|http)\W{{1,4}}({_WRAPPED_STATUS})\b", re.IGNORECASE)
"""Matches a status of the client's fault in the words of an error."""


def wrapped_status(status: int, text: str, prompt: str) -> int:
    """Return the status of the refusal that an error of a gateway is about; else the error's own status.

    Gateways answer 500 where the service behind them refused the request (400) or its rate (429). To send that again
    helps as little as to send the refused request itself.

    Args:
        status: the HTTP status.
        text: the body of the error.
        prompt: the request's text. A server may repeat it, so that words which stand in it say nothing.
    """
    if status < 500:
        return status
    try:
        error = _error_in(json.loads(text))
    except (ValueError, RecursionError):
        error = None
    if isinstance(error, Mapping):
        for name in ("code", "status_code", "status"):
            code = str(error.get(name))
            if re.fullmatch(_WRAPPED_STATUS, code):
                return int(code)

    lowered_prompt = prompt.lower()
    for match in _WRAPPED_CODE.finditer(text):
        if match[0].lower() not in lowered_prompt:
            return int(match[1])
    for pattern, meaning in _WRAPPED.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            if match[0].lower() not in lowered_prompt:
                return meaning
    return status


def redact(text: str, secret: str) -> str:
    """Return the text with ``[key]`` in place of the key; an empty key is none.

    A short key, as servers of one's own take any, is looked for as a word: its letters stand in others by chance.
    """
    if not secret:
        return text
    if len(secret) < UNLIKELY:
        return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[key]", text)
    return text.replace(secret, "[key]")


def words_of(text: str, secret: str = "") -> str:
    """Return the message in the body of a refusal, on one line of :data:`LONGEST_MESSAGE` characters at most.

    It is OpenAI's ``error.message`` where there is one, else the whole body.

    Args:
        text: the body.
        secret: the key, which is taken out before the line is cut.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    # Google's servers put the object into a list.
    if isinstance(body, list) and len(body) == 1:
        [body] = body
    message = body
    if isinstance(body, Mapping):
        error = _error_in(body)
        if "choices" in body and not error:
            return ""
        message = error or body.get("message") or body.get("detail")
        if isinstance(message, Mapping):
            message = message.get("message", message)
    if not isinstance(message, str) or not message:
        message = text

    line = redact(writable(" ".join(message.split())), secret)
    if len(line) <= LONGEST_MESSAGE:
        return line
    return f"{line[:LONGEST_MESSAGE]}…"


FORMS = {
    b"data:": "a stream of events: have the server or gateway answer at once",
    b"event:": "a stream of events: have the server or gateway answer at once",
    b"<": "a page: check that base_url ends where the server's API begins, as in https://host/v1",
    b'"output"': "of OpenAI's responses API: check base_url",
    b'"stop_reason"': "of Anthropic's messages API: check base_url",
    b'"done"': "of Ollama's own API: base_url ends in /v1 there",
}
"""What an answer is that is no chat completion, by how it begins, or a key that it has."""


def beginning(content: bytes, secret: str) -> str:
    """Return what an answer is in place of a chat completion, or how it begins, for the end of a message.

    Args:
        content: the answer.
        secret: the key, which is taken out.
    """
    content = content.lstrip(b"\xef\xbb\xbf \r\n\t")
    if not content:
        return ", it is empty"
    for mark, form in FORMS.items():
        is_key = mark.startswith(b'"') and content.startswith(b"{") and mark in content[:CUT]
        if is_key or content.startswith(mark):
            return f", but {form}"
    line = redact(writable(" ".join(content[:CUT].decode("utf-8", "replace").split())), secret)
    if len(line) > SHORT:
        line = f"{line[:SHORT]}…"
    return f", it begins with {line}"


def is_empty_account(status: int, text: str, prompt: str) -> bool:
    """Return whether a refusal says that the account has nothing left, which no request is the cause of.

    Args:
        status: the HTTP status.
        text: the body of the refusal.
        prompt: the request's text. It may speak of balances itself, so that a server which repeats it says nothing.
    """
    # Payment Required, whatever the words.
    if status == 402:
        return True
    if status not in (400, 403, 429):
        return False
    match = _EMPTY.search(text)
    return match is not None and match[0].lower() not in prompt.lower()


_REFUSES = re.compile(
    r"support|permitted|both be|used? together|unknown|unrecognized|unexpected|not (?:allowed|accepted|available)"
    r"|must be|extra|deprecated|invalid|only|range|greater than|requires|unavailable|incompatible|conflict|disabled",
    re.IGNORECASE,
)
"""Matches the words by which services say that they do not take a parameter."""
_AT_MOST = re.compile(
    r"(?:between 0 and|at most|or equal to|maximum (?:is|of|value is)|up to|max(?:imum)? allowed:?|<=) ?(\d+)",
    re.IGNORECASE,
)
"""Matches the words by which services say how large a number may be."""
_TOO_LONG = re.compile(
    r"context[_ ](?:length|size|limit|window)|prompt (?:is|was) too long|(?:prompt|input)\b.{0,40} (?:is )?too long"
    r"|maximum (?:model|prompt|input) length|token count .{0,20}exceeds|`?inputs`? tokens \+"
    r"|exceeds? .{0,40}(?:number of tokens|token limit)|request too large|entity too large|payload too large",
    re.IGNORECASE,
)
"""Matches the words by which services say that a prompt, with the room for its answer, is too long for the model."""


def is_too_long(status: int, text: str, prompt: str) -> bool:
    """Return whether a refusal says that the request is longer than what the server takes.

    Args:
        status: the HTTP status.
        text: the body of the refusal.
        prompt: the request's text. A server may repeat it, so that words which stand in it say nothing.
    """
    # Content Too Large, whatever the words.
    if status == 413:
        return True
    if status not in (400, 422):
        return False
    lowered_prompt = prompt.lower()
    return any(match[0].lower() not in lowered_prompt for match in _TOO_LONG.finditer(text))


def refused_parameters(status: int, text: str, sent: Sequence[str], prompt: str) -> list[str]:
    """Return which of the parameters that were sent a refusal names, in the order of ``sent``.

    Args:
        status: the HTTP status.
        text: the body of the refusal: OpenAI's ``error.param``, FastAPI's ``loc``, or words.
        sent: names of the parameters that may be left out.
        prompt: the request's text. A server may repeat it, so that a name which stands in it says nothing.
    """
    # OpenAI refuses log-probabilities of some models as what a key may not see.
    if status == 403:
        sent = [name for name in sent if "logprobs" in name]
    elif status not in (400, 422):
        return []
    if not _REFUSES.search(text):
        return []
    # Whole words: top_p does not stand in top_priority.
    named = set(re.findall(r"[a-z_]+", text)) - set(re.findall(r"[a-z_]+", prompt))
    return [name for name in sent if name in named]


def largest_taken(text: str) -> int | None:
    """Return the largest number that a refusal says a parameter may have; None where it names none."""
    match = _AT_MOST.search(text)
    if match is None:
        return None
    return int(match[1])


def response_format(form: base.Form, step: base.Step) -> dict[str, Any]:
    """Return the parameter ``response_format`` of a request whose reply has a form.

    Args:
        form: the lines of the reply.
        step: the request's step, which names the schema.
    """
    properties = {line.name: _schema(line) for line in form}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": step, "strict": True, "schema": schema}}


def _schema(line: base.FormLine) -> dict[str, Any]:
    """Return the JSON schema of one line's value."""
    # Scores are numbers in JSON, and letters are texts.
    values: list[int | str] = []
    for value in line.values:
        if value.isdigit():
            values.append(int(value))
        else:
            values.append(value)

    schema: dict[str, Any] = {"type": "string"}
    if values and isinstance(values[0], int):
        schema["type"] = "integer"
    if values:
        schema["enum"] = values
    return schema


def in_form(answer: str, form: base.Form) -> str:
    """Return an answer in JSON as the lines of its form, each value on one line.

    An answer that breaks the schema comes back as it is. It then has to be in the prompt's own form, or nothing is read
    from it.
    """
    try:
        # A tuple of pairs keeps names that stand twice.
        pairs = json.loads(answer, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return answer
    if not isinstance(pairs, tuple) or len(pairs) != len(form):
        return answer

    values = dict(pairs)
    lines = []
    for line in form:
        value = values.get(line.name)
        if line.name not in values or not _fits(value, line):
            return answer
        lines.append(line.written.replace("{}", " ".join(str(value).split())))
    return "\n".join(lines)


def _fits(value: Any, line: base.FormLine) -> bool:
    """Return whether a value is one of a line's, or a text where the line allows any."""
    # To Python true is 1, which a list of scores may allow.
    if isinstance(value, bool):
        return False
    allowed = _schema(line).get("enum")
    if allowed:
        return value in allowed
    return isinstance(value, str)
