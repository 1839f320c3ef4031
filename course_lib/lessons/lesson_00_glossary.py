"""The glossary of the course: each term with its Bangla name, one line, and the lessons that use it.

The lines are in the catalogue, in English and Bangla, as `[glossary.token]` of `lesson_00.toml`. The Bangla
names are those that practitioners in Bangladesh say.
"""

import difflib
from html import escape
from typing import NamedTuple

from course_lib.classroom.messages import current_language, say
from course_lib.classroom.svg import FAINT, FONT, Picture


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_00.{key}", **values)


class Term(NamedTuple):
    """`key`: its line in the catalogue. `lessons`: where it is introduced, and where it matters most."""

    key: str
    bangla: str
    lessons: str

    @property
    def english(self) -> str:
        return self.key.removeprefix("glossary.").replace("_", " ")

    @property
    def line(self) -> str:
        return _say(self.key)


TERMS = (
    Term("glossary.activation", "অ্যাক্টিভেশন", "06"),
    Term("glossary.attention", "অ্যাটেনশন", "01"),
    Term("glossary.autocast", "অটোকাস্ট", "07"),
    Term("glossary.backend", "ব্যাকএন্ড", "00"),
    Term("glossary.bandwidth", "ব্যান্ডউইথ", "09, 10"),
    Term("glossary.base_model", "বেস মডেল", "09"),
    Term("glossary.baseline", "বেসলাইন", "08"),
    Term("glossary.batch", "ব্যাচ", "00, 03"),
    Term("glossary.bias", "বায়াস", "01, 05"),
    Term("glossary.bit", "বিট", "00, 12"),
    Term("glossary.byte", "বাইট", "00"),
    Term("glossary.cache", "ক্যাশ", "01, 04"),
    Term("glossary.causal", "কজাল", "01"),
    Term("glossary.checkpoint", "চেকপয়েন্ট", "07, 09"),
    Term("glossary.clipping", "ক্লিপিং", "07"),
    Term("glossary.code_point", "কোড পয়েন্ট", "03"),
    Term("glossary.conjunct", "যুক্তবর্ণ", "00"),
    Term("glossary.decode", "ডিকোড", "09"),
    Term("glossary.dtype", "ডিটাইপ", "00, 07"),
    Term("glossary.embedding", "এমবেডিং", "03"),
    Term("glossary.exponent", "এক্সপোনেন্ট", "07"),
    Term("glossary.extrapolation", "এক্সট্রাপোলেশন", "05"),
    Term("glossary.feed-forward", "ফিড-ফরওয়ার্ড", "06"),
    Term("glossary.gate", "গেট", "06"),
    Term("glossary.gradient", "গ্রেডিয়েন্ট", "00, 07"),
    Term("glossary.gradient_accumulation", "গ্রেডিয়েন্ট অ্যাকিউমুলেশন", "07"),
    Term("glossary.grapheme", "গ্রাফিম", "00"),
    Term("glossary.greedy", "গ্রিডি", "09"),
    Term("glossary.grouped-query", "গ্রুপড-কোয়েরি", "04"),
    Term("glossary.head", "হেড", "00, 04"),
    Term("glossary.inference", "ইনফারেন্স", "09"),
    Term("glossary.kernel", "কার্নেল", "02"),
    Term("glossary.key", "কী", "01"),
    Term("glossary.kv_head", "কেভি হেড", "04"),
    Term("glossary.latency", "ল্যাটেন্সি", "09, 11"),
    Term("glossary.layer", "লেয়ার", "03"),
    Term("glossary.logits", "লজিটস", "03"),
    Term("glossary.loss", "লস", "00, 03"),
    Term("glossary.loss_scale", "লস স্কেল", "07"),
    Term("glossary.mantissa", "ম্যান্টিসা", "07"),
    Term("glossary.mask", "মাস্ক", "01"),
    Term("glossary.master_weights", "মাস্টার ওয়েট", "07"),
    Term("glossary.MFU", "এমএফইউ", "08"),
    Term("glossary.mixed_precision", "মিক্সড-প্রিসিশন", "07"),
    Term("glossary.nat", "ন্যাট", "03"),
    Term("glossary.offloading", "অফলোডিং", "10"),
    Term("glossary.optimizer", "অপটিমাইজার", "03, 07"),
    Term("glossary.overflow", "ওভারফ্লো", "00, 07"),
    Term("glossary.packing", "প্যাকিং", "03"),
    Term("glossary.padding", "প্যাডিং", "01, 03"),
    Term("glossary.parameter", "প্যারামিটার", "03"),
    Term("glossary.peak_memory", "সর্বোচ্চ মেমরি", "07, 08"),
    Term("glossary.perplexity", "পারপ্লেক্সিটি", "00, 12"),
    Term("glossary.position", "পজিশন", "03, 05"),
    Term("glossary.prefill", "প্রিফিল", "09"),
    Term("glossary.profile", "প্রোফাইল", "08"),
    Term("glossary.prompt", "প্রম্পট", "09"),
    Term("glossary.quantization", "কোয়ান্টাইজেশন", "12"),
    Term("glossary.query", "কোয়েরি", "01"),
    Term("glossary.recomputation", "রিকম্পিউটেশন", "02, 06"),
    Term("glossary.roofline", "রুফলাইন", "08, 09"),
    Term("glossary.sampling", "স্যাম্পলিং", "09"),
    Term("glossary.score", "স্কোর", "01"),
    Term("glossary.seed", "সিড", "03, 06"),
    Term("glossary.sequence", "সিকোয়েন্স", "00"),
    Term("glossary.shape", "শেপ", "00"),
    Term("glossary.slope", "স্লোপ", "05"),
    Term("glossary.softmax", "সফটম্যাক্স", "00, 01"),
    Term("glossary.subnormal", "সাবনরমাল", "07"),
    Term("glossary.target", "টার্গেট", "03"),
    Term("glossary.temperature", "টেম্পারেচার", "09"),
    Term("glossary.tensor", "টেনসর", "00"),
    Term("glossary.throughput", "থ্রুপুট", "08, 09, 11"),
    Term("glossary.tied_head", "টাইড হেড", "07"),
    Term("glossary.tile", "টাইল", "02"),
    Term("glossary.token", "টোকেন", "00"),
    Term("glossary.tokenizer", "টোকেনাইজার", "00, 03"),
    Term("glossary.top-p", "টপ-পি", "09"),
    Term("glossary.training", "ট্রেনিং", "03, 07"),
    Term("glossary.underflow", "আন্ডারফ্লো", "07"),
    Term("glossary.value", "ভ্যালু", "01"),
    Term("glossary.weight", "ওয়েট", "01, 03"),
    Term("glossary.workspace", "ওয়ার্কস্পেস", "01, 02"),
)


_COLUMNS = ("glossary_head.term", "glossary_head.bangla", "glossary_head.line", "glossary_head.lesson")


def glossary() -> Picture:
    """All terms as a table, in the language of the messages."""
    cell = "text-align:left;vertical-align:top;padding:2px 14px 2px 0;border:0"
    heads = [_say(key) for key in _COLUMNS]
    caption = _say("glossary_head.caption", count=len(TERMS))
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="{cell}">{escape(term.english)}</th>'
        f'<td lang="bn" style="{cell};white-space:nowrap">{escape(term.bangla)}</td>'
        f'<td style="{cell}">{escape(term.line)}</td><td style="{cell};white-space:nowrap">{term.lessons}</td></tr>'
        for term in TERMS
    )
    top = "".join(
        f'<th scope="col" style="{cell};border-bottom:1px solid {FAINT}">{escape(h)}</th>' for h in heads
    )
    html = (
        f'<table lang="{current_language()}" style="border-collapse:collapse;color:inherit;max-width:720px;'
        f'font:14px {FONT}"><caption style="text-align:left;color:inherit;font-weight:bold">'
        f"{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>"
    )
    return Picture(html, caption)


def meaning(word: str) -> None:
    """Print what a term means; `word` is its English or its Bangla name. Unknown: the terms that look like it."""
    wanted = str(word).strip().lower()
    names = {name.lower(): term for term in TERMS for name in (term.english, term.bangla)}
    found = names.get(wanted) or names.get(wanted.removesuffix("s"))
    if found is not None:
        lesson = f"{_say('glossary_head.lesson')} {found.lessons}"
        print(f"{found.english} · {found.bangla} · {found.line} · {lesson}")
        return
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
    if near:
        terms = ", ".join(dict.fromkeys(names[name].english for name in near))
        print(_say("glossary_head.unknown_near", word=str(word), near=terms))
    else:
        print(_say("glossary_head.unknown", word=str(word)))
