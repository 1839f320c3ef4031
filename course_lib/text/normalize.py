"""One spelling for each Bangla word: NFC, and the few joins that NFC leaves apart.

Two people type the same word and the files differ: র can arrive as ব with a dot (U+09AC U+09BC), ৎ as ত,
hasant and a joiner, ো as its two halves in either order. A model, a search and a tokenizer see different
words. This runs on the corpus and on prompts, *outside* the tokenizer, whose round trip stays exact.

It respells and never rewrites: what the reader sees stays the same. Hence it leaves alone

- ZWJ and ZWNJ inside a word: র‍্যাম is not র্যাম, উদ্‌যাপন is not উদ্যাপন;
- Assamese ৰ and ৱ, which are letters of their own;
- signs typed twice (কাা) and অ followed by া: they show as typed, so they are for the writer to correct;
- everything in other scripts, beyond NFC itself.

ড়, ঢ় and য় come out as two code points (ড + ়), because NFC says so: Unicode excludes U+09DC, U+09DD and U+09DF
from composition, for good. Compare Bangla strings only after both have been through here.

Sources: The Unicode Standard 12.2 (Bengali: khanda ta, ra + ya-phala), UAX 15 (NFC), and HarfBuzz with Noto
Sans Bengali, which shapes both spellings of each join below to the same glyphs, in every word of the corpus that
has one. In two cases the joined spelling alone is shaped well: র typed as ব় becomes a reph before a consonant
(সূর্য), and ৎ typed the old way keeps clear of the ে or the reph beside it (বিদ্যুৎকেন্দ্র, ভর্ৎসনা).
"""

import re
import unicodedata

_MARKS = "\u0981-\u0983\u09bc\u09be-\u09cd\u09d7\u09e2\u09e3\u09fe"
_CONSONANTS = "\u0995-\u09b9\u09dc\u09dd\u09df\u09f0\u09f1"
_VOWEL_SIGNS = "\u09be-\u09cc\u09d7"
_LETTERS = f"\u0985-\u09b9\u09bd\u09ce\u09dc-\u09e1\u09f0\u09f1\u09fc{_MARKS}"

# Each pair: what is found, and what it means. All are applied after NFC, which puts a nukta before a hasant.
_JOINS = (
    # ব + nukta has no other meaning than র, whose dot the writer typed by itself.
    (re.compile("\u09ac\u09bc"), "\u09b0"),
    # ত + hasant + ZWJ was how ৎ was written before Unicode 4.1. A mark after it would have no letter to sit
    # on.
    (re.compile(f"\u09a4\u09cd\u200d(?![{_MARKS}])"), "\u09ce"),
    # র + ZWNJ + hasant + য is the older spelling of র‍্য (র্যাম's reph is prevented either way).
    (re.compile("\u09b0\u200c\u09cd\u09af"), "\u09b0\u200d\u09cd\u09af"),
    # া typed before ে, or ৗ before ে: the reverse order of what NFC joins, and shaped the same.
    (re.compile(f"(?<=[{_CONSONANTS}\u09bc])\u09be\u09c7(?![{_VOWEL_SIGNS}])"), "\u09cb"),
    (re.compile(f"(?<=[{_CONSONANTS}\u09bc])\u09d7\u09c7(?![{_VOWEL_SIGNS}])"), "\u09cc"),
)

# A joiner twice in a row says what one says; one that opens a Bangla word has nothing to join.
_DOUBLED_JOINER = re.compile(f"(?<=[{_LETTERS}])([\u200c\u200d])\\1+")
_LEADING_JOINER = re.compile(f"(?<!\\S)[\u200c\u200d]+(?=[{_LETTERS}])")

# NFC text without any of these is as it should be, and nearly all text is: the joins need not be tried.
_WORTH_A_LOOK = re.compile("[\u200c\u200d|]|\u09ac\u09bc|[\u09be\u09d7]\u09c7")

# On many keyboards | is where the danda should be. It is one only where it closes a Bangla word and is
# followed by space, a closing quote or the end; with space on both sides, or at a line's start, it rules a
# table.
_TYPED_DANDA = re.compile(f"(?<=[{_LETTERS}])\\|(?=$|[\\s\"'”’)\\]])", re.MULTILINE)
_TABLE_RULE = re.compile(r"^[ \t]*\||[ \t]\|", re.MULTILINE)


def normalize_bangla(text: str) -> str:
    """Return ``text`` in NFC with Bangla's remaining alternative spellings joined.

    Idempotent, and the result is NFC. ``|`` typed for a দাঁড়ি directly after a Bangla word becomes ``।``; the
    danda, ZWJ and ZWNJ that carry meaning, and Latin text are kept.

    Raises TypeError if ``text`` is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"text: expected a str, got {type(text).__name__}; decode bytes with .decode('utf-8') first"
        )
    if text.isascii():
        return text
    # A join can bring two signs together that form another: it settles at the second pass, nearly always.
    while (normal := _one_pass(text)) != text:
        text = normal
    return text


def _one_pass(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    if not _WORTH_A_LOOK.search(text):
        return text
    for pattern, replacement in _JOINS:
        text = pattern.sub(replacement, text)
    text = _DOUBLED_JOINER.sub(r"\1", text)
    text = _LEADING_JOINER.sub("", text)
    if "|" in text:
        text = "\n".join(_danda_in_line(line) for line in text.split("\n"))
    return unicodedata.normalize("NFC", text)


def _danda_in_line(line: str) -> str:
    return line if _TABLE_RULE.search(line) else _TYPED_DANDA.sub("।", line)
