"""Recognising Bangla that is stored as Latin letters for a Bijoy font (SutonnyMJ and its kin).

Before Unicode, Bangla was typed as ASCII and drawn by a font that shows ``v`` as া and ``†`` as ে. Such a file is
*valid* UTF-8, and a model trained on it learns nonsense: ``Avgvi †mvbvi evsjv`` is আমার সোনার বাংলা. In these fonts

- া, the most frequent sign of Bangla, is ``v``, and it follows a consonant: ``bv`` না, ``Kgv`` কমা, ``mvbv`` সানা;
- ে and ৈ stand before their consonant as † ‡ ˆ ‰, and ্য, র্, ্র after it as ¨ © ª;
- স্ and ্র appear as ``¯`` and ``Ö`` among lower-case letters.

No European language glues those to letters in a third of its words. Banglish, English, French, Czech and source code
stay below an eighth (measured in tests/text/test_bijoy.py).
"""

import re
from dataclasses import dataclass
from typing import Final

_WORD: Final = re.compile(r"\S*[A-Za-z]\S*")

_EVIDENCE: Final = re.compile(
    r"""
      [†‡ˆ‰][A-Za-z_`~¯]                                  # ে or ৈ, then its consonant
    | [A-Za-z_`~][¨©ª](?![a-z]{3}) | [a-z]Ö               # ya-phala, reph or ra-phala on its consonant
    | ¯['’‘^\-A-Za-z]                                     # স্ with what it joins
    | [BCDFGHJKLMNPQRSTVWXZbcdfghjklmnpqtwxz_`]v(?![A-Z]{2}|[à-öø-ÿ])  # া on a letter that is no vowel in English
    | \bAv[bcdfghjkmnpqstwxz]                             # আ is written Av
    | \bw[bcdfgjklmnpqtxzBCDFGJKLMNPQRSTUVWXYZ`_]         # ি stands before its consonant
    """,
    re.VERBOSE,
)

# Letters of Czech, Polish, Turkish … that no Bijoy font uses (it uses those of Windows-1252: š, œ and ž among them).
_FOREIGN: Final = re.compile(r"[\u0100-\u0151\u0154-\u015f\u0162-\u0177\u0179-\u017c]")

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
        """At least three such words, three in ten of all, and three different signs (IPv4 in a table is one)."""
        return self.hits >= max(_FEWEST, _SHARE * self.words) and len(self.signs) >= _FEWEST


def bijoy_evidence(text: str) -> BijoyEvidence:
    """Count the words of ``text`` that hold Latin letters, and those among them that look like Bijoy."""
    words = _WORD.findall(text)
    signs = [_EVIDENCE.findall(word) for word in words if not _FOREIGN.search(word)]
    return BijoyEvidence(len(words), sum(map(bool, signs)), frozenset().union(*signs))


def looks_like_bijoy(text: str) -> bool:
    """Whether ``text`` is Bangla in a Bijoy font's encoding. One or two words alone are never enough to say so."""
    return bijoy_evidence(text).convinces
