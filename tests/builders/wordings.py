"""Criteria that judges use, each in six wordings: which wordings say the same is known.

They were written by hand, in the forms that judges and teachers use (a name and what it asks, a question, a demand,
a name alone), and put into two halves before anything was measured. Both halves have criteria that are near each other,
opposites, and demands to avoid something. Thresholds are chosen on :data:`CHOOSING` and reported on :data:`REPORTING`.
"""

from judgetrain.extras.rubric.wordings import known_wordings

CHOOSING: dict[str, tuple[str, ...]] = {name: tuple(texts) for name, texts in known_wordings().items()}
"""Thirteen criteria by which it is learned what a cosine says: the room holds them (wordings.yaml)."""

REPORTING: dict[str, tuple[str, ...]] = {
    "relevance": (
        "Relevance: the answer stays on the topic",
        "Does the response address the question?",
        "On topic",
        "Answers what was asked",
        "Pertinence to the user's query",
        "Avoids drifting off topic",
    ),
    "formality": (
        "Formal tone",
        "Is the style formal?",
        "Formality: the register suits an official letter",
        "Professional and formal style",
        "Avoids slang",
        "Business-like register",
    ),
    "casualness": (
        "Casual tone",
        "Is the style informal?",
        "Conversational: it chats as a friend would",
        "Relaxed and informal style",
        "Avoids stiffness",
        "Uses everyday slang",
    ),
    "organisation": (
        "Organization: a logical order of parts",
        "Is the answer well structured?",
        "Structure and formatting",
        "Well organised with headings or lists",
        "Logical flow",
        "Layout: sections are easy to find",
    ),
    "empathy": (
        "Empathy: it cares about the user's feelings",
        "Does the response show compassion?",
        "Emotional understanding",
        "Acknowledges how the user feels",
        "Warm and caring",
        "Shows sympathy",
    ),
    "reasoning": (
        "Reasoning: the steps are shown",
        "Does the answer explain how it arrives at its conclusion?",
        "Shows its work",
        "Step-by-step derivation",
        "Transparent chain of thought",
        "Conclusions are justified by intermediate steps",
    ),
    "sources": (
        "Citations: sources are named",
        "Does the answer cite references?",
        "Provides sources for its claims",
        "Backed by references",
        "Use of evidence from trusted sources",
        "Attribution of information",
    ),
    "neutrality": (
        "Neutrality: it takes no side",
        "Is the response unbiased?",
        "Balanced view of both sides",
        "Impartial and objective",
        "Avoids bias",
        "Does not push an opinion",
    ),
    "persuasion": (
        "Persuasiveness: it wins the reader over",
        "Does the answer argue for one side?",
        "Convincing argument",
        "Takes a clear stand",
        "Compelling case for a position",
        "Strong opinion",
    ),
    "grammar": (
        "Grammar and spelling",
        "Is the text free of spelling mistakes?",
        "Correct grammar and punctuation",
        "No typos",
        "Language mechanics: spelling, grammar, punctuation",
        "Grammatical correctness",
    ),
    "advice": (
        "Actionability: the user can act on it",
        "Does the response give practical advice?",
        "Practical next steps",
        "Useful, hands-on tips",
        "Concrete recommendations to follow",
        "Offers actionable suggestions",
    ),
    "repetition": (
        "Avoids repetition",
        "Does it say each thing only once?",
        "No redundancy",
        "Non-repetitive wording",
        "Free of repeated sentences",
        "Does not repeat itself",
    ),
}
"""Twelve criteria by which the figures are reported."""

MEANT = {text.partition(":")[0]: name for name, texts in (CHOOSING | REPORTING).items() for text in texts}
"""The criterion that a wording means, by the wording's name."""


def criterion_of(text: str) -> str:
    """Return which criterion a wording means."""
    return MEANT[text.partition(":")[0]]
