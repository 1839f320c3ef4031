"""Recognising Bangla that is stored as Latin letters for a Bijoy font (SutonnyMJ and its kin).

Before Unicode, Bangla was typed as ASCII and drawn by a font that shows ``v`` as া and ``†`` as ে. Such a
file is *valid* UTF-8, and a model trained on it learns nonsense: ``Avgvi †mvbvi evsjv`` is আমার সোনার বাংলা.
In these fonts

- া, the most frequent sign of Bangla, is ``v``, and follows a consonant: ``bv`` না, ``Kgv`` কমা;
- ে and ৈ stand before their consonant as † ‡ ˆ ‰, and ্য, র্, ্র after it as ¨ © ª;
- স্ and ্র appear as ``¯`` and ``Ö`` among lower-case letters.

No European language glues those to letters in a third of its words. Banglish, English, French, Czech and
source code stay below a fifth (measured in tests/text/test_bijoy.py).
"""

import re
from dataclasses import dataclass
from typing import Final

# Tried at the start of a word only, or a long word without what is sought would take the square of its length.
_WORD: Final = re.compile(r"(?<!\S)\S*?[A-Za-z]\S*")
# Words without one of these cannot show evidence: most of any other text, so it is judged quickly.
_SUSPECT: Final = re.compile(r"(?<!\S)\S*?[vw†‡ˆ‰¨©ªÖ¯]\S*")

_EVIDENCE: Final = re.compile(
    "|".join(
        (
            r"[†‡ˆ‰][A-Za-z_`~¯]",  # ে or ৈ, then its consonant
            r"[A-Za-z_`~][¨©ª](?![a-z]{3})",  # a consonant and its ya-phala, reph or ra-phala
            r"[a-z]Ö",  # ra-phala again
            r"¯['’‘^\-A-Za-z]",  # স্ with what it joins
            r"[BCDFGHJKLMNPQRSTVWXZbcdfghjklmnpqtwxz_`]v(?![A-Z]{2}|[à-öø-ÿ])",  # া
            r"\bAv[bcdfghjkmnpqstwxz]",  # আ is written Av
            r"\bw[bcdfgjklmnpqtxzBCDFGJKLMNPQRSTUVWXYZ`_]",  # ি stands before its consonant
        )
    )
)

# Letters of Czech, Polish, Turkish … that no Bijoy font uses (it uses those of Windows-1252, such as š and œ).
_FOREIGN: Final = re.compile(r"[\u0100-\u0151\u0154-\u015f\u0162-\u0177\u0179-\u017c]")

BIJOY_ADVICE: Final = (
    "Bangla typed for a Bijoy font (SutonnyMJ), which is Latin letters to any other program; convert the file with "
    "a Bijoy-to-Unicode converter first"
)

_SHARE: Final = 0.3
_FEWEST: Final = 3


@dataclass(frozen=True, slots=True)
class BijoyEvidence:
    """How many words of a text hold Latin letters, how many of these look like Bijoy, and by which signs.

    Evidence adds up: that of two texts is the sum.
    """

    words: int = 0
    hits: int = 0
    signs: frozenset[str] = frozenset()

    def __add__(self, other: "BijoyEvidence") -> "BijoyEvidence":
        return BijoyEvidence(self.words + other.words, self.hits + other.hits, self.signs | other.signs)

    @property
    def convinces(self) -> bool:
        """At least three such words, three in ten of all, by three different signs that are not all a ``v``.

        A table of IPv4 addresses shows one sign; ``csv``, ``env`` and ``mkv`` are a ``v`` each.
        """
        enough = self.hits >= max(_FEWEST, _SHARE * self.words)
        return enough and len(self.signs) >= _FEWEST and not all(sign.endswith("v") for sign in self.signs)


def bijoy_evidence(text: str) -> BijoyEvidence:
    """Count the words of ``text`` that hold Latin letters, and those among them that look like Bijoy."""
    words = len(_WORD.findall(text))
    if not words:
        return BijoyEvidence()
    signs = [_EVIDENCE.findall(word) for word in _SUSPECT.findall(text) if not _FOREIGN.search(word)]
    return BijoyEvidence(words, sum(map(bool, signs)), frozenset().union(*signs))


def looks_like_bijoy(text: str) -> bool:
    """Whether ``text`` is Bangla in a Bijoy font's encoding. One or two words alone are never enough to say
    so."""
    return bijoy_evidence(text).convinces
