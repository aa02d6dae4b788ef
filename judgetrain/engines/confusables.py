"""Text as it looks: what differs in bytes alone is made the same, and every character keeps its place.

Line breaks of every kind become ``\\n`` and spaces of every kind a space; what is invisible is left out; full-width,
mathematical, circled and accented letters become plain ones (Unicode NFKD), and letters of other scripts that are drawn
like Latin ones become those. Fractions, superscripts and Roman numerals stay as they are: they change a number.

The look-alikes are those of Unicode Technical Standard 39, ``confusables.txt``, that stand for an ASCII letter or colon
in common fonts; brackets of Chinese and Japanese print are added to them.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

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
_LIKE = {ord(odd): plain for odds, plains in _ALPHABETS for odd, plain in zip(odds, plains, strict=True)}
_LIKE |= {first + i: chr(ord("A") + i) for first in (0x1F150, 0x1F170, 0x1F1E6) for i in range(26)}  # in dark signs
_BREAKS = frozenset("\v\f\r\x1c\x1d\x1e\x85\u2028\u2029")
_BLANK = frozenset("\u115f\u1160\u3164\uffa0")
"""Hangul fillers: letters that are drawn as nothing."""
_ODD = re.compile(r"[^\t\n -~]")


@dataclass(frozen=True)
class Folded:
    """A text as it looks. ``places``: where each of its characters stands in the original, and that text's length."""

    text: str
    places: list[int] | range

    def line_start(self, at: int) -> int:
        """Where in the original the line begins that begins at ``at`` here: invisible characters before it are its."""
        return self.places[at - 1] + 1 if at else 0


def fold(text: str) -> Folded:
    """The text as it looks, with the places of its characters; marks that strike out a digit stay."""
    if not _ODD.search(text):
        return Folded(text, range(len(text) + 1))
    parts: list[str] = []
    places: list[range | list[int]] = []
    upto = 0
    for match in _ODD.finditer(text):
        at = match.start()
        plain = _plain(match[0])
        if match[0] == "\r" and text[at + 1 : at + 2] == "\n":
            plain = ""  # one line break, written with two characters
        elif unicodedata.combining(match[0]) and text[at - 1 : at].isdigit():
            plain = match[0]
        parts += (text[upto:at], plain)
        places += (range(upto, at), [at] * len(plain))
        upto = at + 1
    parts.append(text[upto:])
    places.append(range(upto, len(text) + 1))
    return Folded("".join(parts), list(chain.from_iterable(places)))


@lru_cache(maxsize=8192)
def _plain(char: str) -> str:
    """What a character that is no printable ASCII looks like; nothing if it is invisible."""
    category = unicodedata.category(char)
    if char in _BREAKS:
        return "\n"
    if category == "Zs" or char == "\u2800":
        return " "
    if category in ("Cf", "Cc", "Mn", "Me") or char in _BLANK:
        return ""
    if char.isnumeric():
        return str(unicodedata.decimal(char)) if char.isdecimal() else char
    if ord(char) in _LIKE:
        return _LIKE[ord(char)]
    bare = "".join(c for c in unicodedata.normalize("NFKD", char) if unicodedata.category(c) != "Mn")
    plain = bare if len(bare) == 1 else unicodedata.normalize("NFKC", char)
    return "".join(_LIKE.get(ord(c), c) for c in plain)
