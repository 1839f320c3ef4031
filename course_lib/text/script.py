"""Which script a text is written in, as a first guess at its language."""

import regex

_BANGLA = regex.compile(r"\p{Bengali}+")
_LATIN = regex.compile(r"\p{Latin}+")


def script_language(text: str) -> str:
    """Return "bn" for Bangla letters, "en" for Latin ones, "mixed" for Bangla with Latin words, "other" for
    neither.

    One Latin letter in twenty makes Bangla text "mixed"; one Bangla letter in twenty does so for Latin text.
    """
    bangla = sum(map(len, _BANGLA.findall(text)))
    latin = sum(map(len, _LATIN.findall(text)))
    if not bangla and not latin:
        return "other"
    if min(bangla, latin) * 20 >= bangla + latin:
        return "mixed"
    return "bn" if bangla > latin else "en"
