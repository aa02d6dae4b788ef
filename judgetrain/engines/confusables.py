"""Fold text to how it looks, so that texts which look the same are the same, and keep every character's place.

Line breaks of every kind become ``\\n`` and spaces of every kind a space; what is invisible is left out; full-width,
mathematical, circled and accented letters become plain ones (Unicode NFKD), and letters of other scripts that are drawn
like Latin ones become those. Fractions, superscripts and Roman numerals stay as they are: they change a number.

The look-alikes are those of Unicode Technical Standard 39, ``confusables.txt``, that stand for an ASCII letter or colon
in common fonts; brackets of Chinese and Japanese print are added to them.
"""

import re
import string
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

_ALPHABETS = (
    ("АВЕКМНОРСТУХЅІЈԚԜҮԌЬ", "ABEKMHOPCTYXSIJQWYGb"),  # Cyrillic
    ("асеорхуѕіјһԁԛԝѵгкпү", "aceopxysijhdqwvrknv"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹ", "ABEZHIKMNOPTYXC"),  # Greek
    ("αγεηικνορστυχωϲϳ", "ayenikvopotuxwcj"),
    ("ՍՏՕԼոօսհցզ", "USOLnouhgq"),  # Armenian
    ("ᎪᏴᏟᎠᎬᏀᎻᎥᎫᏦᏞᎷᏢᎡᏚᎢᏙᎳᏃ", "ABCDEGHiJKLMPRSTVWZ"),  # Cherokee
    ("ꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜ", "ABCDEFGHIJKLMNOPRSTUVWXYZ"),  # Lisu
    ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢɑɡıɩɾʋ", "abcdefghijklmnoprstuvwyzagiiru"),  # small capitals and phonetic letters
    ("ː˸։׃∶꞉", "::::::"),
    ("【〔〖⟦❲】〕〗⟧❳", "[[[[[]]]]]"),
)
"""Letters, and the ASCII characters that they look like."""
_SIGNS = (0x1F150, 0x1F170, 0x1F1E6)
"""The code points of A in the alphabets of white letters in dark signs, and of flags."""


def _look_alikes() -> dict[int, str]:
    """Return the ASCII character that each code point looks like."""
    plain_of = {}
    for letters, plain_letters in _ALPHABETS:
        for letter, plain in zip(letters, plain_letters, strict=True):
            plain_of[ord(letter)] = plain
    for first in _SIGNS:
        for index, plain in enumerate(string.ascii_uppercase):
            plain_of[first + index] = plain
    return plain_of


_LIKE = _look_alikes()
_BREAKS = frozenset("\v\f\r\x1c\x1d\x1e\x85\u2028\u2029")
_BLANK = frozenset("\u115f\u1160\u3164\uffa0")
"""Hangul fillers: letters that are drawn as nothing."""
_ODD = re.compile(r"[^\t\n -~]")
"""Matches a character that may look like another: anything but printable ASCII, tabs and line feeds."""


@dataclass(frozen=True)
class Folded:
    """A text as it looks.

    Args:
        text: the folded text.
        places: the place of each of its characters in the original, and then the original's length.
    """

    text: str
    places: list[int] | range

    def line_start(self, at: int) -> int:
        """Return where in the original the line begins that begins at ``at`` in the folded text.

        Invisible characters before the line's first character belong to it.
        """
        if at == 0:
            return 0
        return self.places[at - 1] + 1


def fold(text: str) -> Folded:
    """Return the text as it looks, with the places of its characters in the original."""
    # Most texts hold nothing odd, and are passed through at the speed of one search.
    if not _ODD.search(text):
        return Folded(text, range(len(text) + 1))

    parts: list[str] = []
    places: list[int] = []
    done = 0
    for match in _ODD.finditer(text):
        at = match.start()
        character = match[0]
        plain = _plain(character)
        if character == "\r" and text[at + 1 : at + 2] == "\n":
            # One line break, written with two characters.
            plain = ""
        elif unicodedata.combining(character) and text[at - 1 : at].isdigit():
            # A mark that strikes out a digit changes what the text says.
            plain = character
        parts += (text[done:at], plain)
        places += range(done, at)
        places += [at] * len(plain)
        done = at + 1
    parts.append(text[done:])
    places += range(done, len(text) + 1)
    return Folded("".join(parts), places)


@lru_cache(maxsize=8192)
def _plain(char: str) -> str:
    """Return what a character that is no printable ASCII looks like; empty if it is invisible."""
    category = unicodedata.category(char)
    if char in _BREAKS:
        return "\n"
    if category == "Zs" or char == "\u2800":
        return " "
    if category in ("Cf", "Cc", "Mn", "Me") or char in _BLANK:
        return ""
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if char.isnumeric():
        # Fractions and the like would become another number.
        return char
    if ord(char) in _LIKE:
        return _LIKE[ord(char)]

    # A letter with its accents is one letter; of other decompositions the compatible form is what is drawn.
    without_accents = ""
    for part in unicodedata.normalize("NFKD", char):
        if unicodedata.category(part) != "Mn":
            without_accents += part
    plain = without_accents
    if len(without_accents) != 1:
        plain = unicodedata.normalize("NFKC", char)
    return "".join(_LIKE.get(ord(part), part) for part in plain)
