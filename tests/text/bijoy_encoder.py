"""Writes Unicode Bangla as a Bijoy font's Latin letters, to make test files. Common conjuncts only; the rest
with &."""

import regex

_LETTERS = dict(
    zip(
        "কখগঘঙচছজঝঞটঠডঢণতথদধনপফবভমযরলশষসহৎংঃঁঅইঈউঊঋএঐওঔািীুূৃ০১২৩৪৫৬৭৮৯।",
        "KLMNOPQRSTUVWXYZ_`abcdefghijklmnrstuABCDEFGHIJvwxy~„0123456789|",
        strict=True,
    )
)

_LETTERS |= {"আ": "Av", "ড়": "o", "ঢ়": "p", "য়": "q"}
_CONJUNCTS = {
    "ক্ষ": "¶", "ঙ্গ": "½", "ন্ত": "šÍ", "ন্দ": "›`", "ন্ন": "bœ", "ম্প": "¤ú", "স্ত": "¯Í", "স্থ": "¯’", "স্ব": "¯^",
    "ত্র": "Î", "ক্র": "µ", "দ্ধ": "×", "জ্ঞ": "Á", "ষ্ট": "ó", "ঞ্চ": "Â", "ল্ল": "jø", "দ্ব": "Ø", "ত্ত": "Ë",
    "ক্ত": "³", "চ্ছ": "”Q", "ট্ট": "Æ", "শ্চ": "ð", "ন্ধ": "Ü",
}  # fmt: skip


def to_bijoy(text: str) -> str:
    return "".join(_grapheme(piece) for piece in regex.findall(r"\X", text))


def _grapheme(piece: str) -> str:
    if not regex.search(r"\p{Bengali}", piece):
        return _LETTERS.get(piece, piece)
    piece = piece.replace("\u200c", "").replace("\u200d", "")
    rest = "".join(_LETTERS[mark] for mark in "ংঃঁ" if mark in piece)
    sign = "".join(regex.findall(r"[\u09be-\u09cc]", piece))
    base = regex.sub(r"[\u09be-\u09cc\u0981-\u0983]", "", piece)
    reph = "©" if base.startswith("র্") and len(base) > 2 else ""
    base = base[2:] if reph else base
    for conjunct, code in _CONJUNCTS.items():
        base = base.replace(conjunct, code)
    base = base.replace("্য", "¨").replace("্র", "Ö").replace("্", "&")
    for letter in sorted(_LETTERS, key=len, reverse=True):
        base = base.replace(letter, _LETTERS[letter])
    before, after = {"ি": ("w", ""), "ে": ("‡", ""), "ৈ": ("ˆ", ""), "ো": ("‡", "v"), "ৌ": ("‡", "Š")}.get(
        sign, ("", _LETTERS.get(sign, ""))
    )
    return before + base + after + reph + rest
