"""What a reader takes a text for, however it is spelt (the skeleton of UTS #39); knows characters and no grammar."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from opencc import OpenCC

# variants that Unicode names by their letter: ɪ, ı, ø, 🄰, 🅰, 🇦, ⒜
_LATIN = re.compile(r"\b(?:LATIN|REGIONAL INDICATOR).* LETTER (?:.* )?([A-Z])(?: WITH .*)?$")
_LOOKALIKES = str.maketrans(
    "аАвВгеЕзЗиИіІјЈкКмМнНоОпрРсСтТуУхХьѕЅшԁԛԝһҺӏӀѵүҮ"  # Cyrillic
    "αΑβΒγεΕΖηΗιΙκΚΜνΝοΟρΡσςτΤυΥχΧωϲϹϳ"  # Greek
    "աեհցոսօՍՕՏԼգք"  # Armenian
    "ꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜ"  # Lisu
    "ᎠᎡᎢᎥᎪᎫᎬᎳᎷᎻᎽᏀᏃᏒᏔᏙᏚᏞᏟᏢᏦᏴ"  # Cherokee
    "’‘ʼ´‹〈⟨❮˂ᐸ›〉⟩❯˃ᐳǀ∣│∕⁄꞉ː։",
    "aAbBreE3ZuNiIjJkKmMhHoOnpPcCtTyYxXbsSwdqwhHlIvyY"
    "aAbByeEZnHiIkKMvNoOpPoctTuYxXwcCj"
    "wehgnuoUOSLqp"
    "ABCDEFGHIJKLMNOPRSTUVWXYZ"
    "DRTiAJEWMHYGZRWVSLCPKB"
    "''''<<<<<<>>>>>>|||//:::",
)
_UNSEEN = ("Mn", "Me", "Cc", "Cf", "Cn", "Co", "Cs")  # marks on a letter, and what has no look of its own
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # letters and signs that are not seen


@lru_cache(maxsize=65_536)
def _seen(character: str) -> str:
    parts = unicodedata.normalize("NFKD", character)
    seen = [c for c in parts if c.isspace() or (c not in _BLANK and unicodedata.category(c) not in _UNSEEN)]
    if seen and (letter := _LATIN.search(unicodedata.name(character, ""))):
        return letter[1].lower()
    return unicodedata.normalize("NFC", "".join(seen)).translate(_LOOKALIKES)


def skeleton(text: str) -> str:
    """A text to compare with patterns, never to keep or to show; each character is looked at by itself."""
    return text if text.isascii() and text.isprintable() else "".join(map(_seen, text))


def simplified(text: str) -> str:
    """A text with simplified Chinese characters, of the same length."""
    plain = text if text.isascii() else _traditional().convert(text)
    return plain if len(plain) == len(text) else text


@cache
def _traditional() -> OpenCC:
    return OpenCC("t2s")
