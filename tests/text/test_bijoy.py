import inspect
import json
import textwrap

import pytest

from course_lib.text import load_corpus, looks_like_bijoy, python_topics, stories
from course_lib.text.bijoy import BijoyEvidence, bijoy_evidence

from .bijoy_encoder import to_bijoy


def test_the_best_known_line_in_bijoy_is_recognised() -> None:
    assert to_bijoy("আমার সোনার বাংলা") == "Avgvi ‡mvbvi evsjv"
    assert looks_like_bijoy("Avgvi †mvbvi evsjv")
    assert looks_like_bijoy("Avgvi ‡mvbvi evsjv, Avwg ‡Zvgvq fv‡jvevwm")


def test_every_bangla_document_written_in_bijoy_is_recognised() -> None:
    missed = [document.id for document in load_corpus("bn") if not looks_like_bijoy(to_bijoy(document.text))]
    assert missed == []


def test_nothing_in_the_corpus_the_stories_or_pythons_help_is_taken_for_bijoy() -> None:
    for document in (*load_corpus(), *stories(300), *python_topics()):
        assert not looks_like_bijoy(document.text), document.id
        evidence = bijoy_evidence(document.text)
        assert evidence.hits <= max(2, evidence.words / 5), document.id


@pytest.mark.parametrize("module", [json.decoder, inspect, textwrap])
def test_source_code_is_not_taken_for_bijoy(module) -> None:
    assert not looks_like_bijoy(inspect.getsource(module))


@pytest.mark.parametrize(
    "text",
    [
        "Kalke class hobe na, sir bolse. Valo achi vai, tumi kivabe asba? Ami bhat khabo, tvra kothay.",
        "Le service vient d'envoyer une œuvre; ils avaient vingt élèves à Genève, l'éveil, avec mes vœux.",
        "Čtvrtek je čtvrtý den. Svět, květ, tvář, mrkev a vlk: vždy dvě věty, dvanáct slov.",
        "Själv gick jag två svåra varv kring sjön en kväll i tvångströja.",
        "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. BÖRSE, MÖBEL, GRÖßE.",
        "Wczoraj wpadł wprost wśród wspaniałych wzgórz, wbrew wszystkim wróżbom, wdzięcznie wgłąb wąwozu.",
        "Twee zwarte vlinders vliegen over het veld; de vrouw verft de vloer.",
        "IPv4 IPv6 IPv4Network IPv6Address csv tsv env argv dev mkv nvm kv cv",
        "WHERE wb = wp AND wb < wp OR wb",
        "for cv, hv in zip(cvs, hvs): csv.writer(sys.argv[1]).writerow([cv, hv])",
        "The price† is in dollars‡ and includes VAT. †See page 5. © 2024 Acme, Inc.",
        "SELECT * FROM nvarchar WHERE kv = 1; vw_sales, pvalue, tval, kvm, dv/dt = 9.8 m/s²",
        "আমার ফোনের র‍্যাম মাত্র ৪ জিবি। model টা train হবে।",
        "",
    ],
)
def test_other_languages_and_code_are_not_taken_for_bijoy(text: str) -> None:
    assert not looks_like_bijoy(text)


@pytest.mark.parametrize("letter", ["a", "ক", "v", "w"])
def test_a_very_long_word_is_judged_in_passing(letter: str) -> None:
    assert not looks_like_bijoy(letter * 1_000_000)


def test_two_words_are_not_enough_and_evidence_adds_up() -> None:
    assert not looks_like_bijoy("Avgvi evsjv")
    assert (bijoy_evidence("Avgvi evsjv") + bijoy_evidence("bv")).convinces
    assert BijoyEvidence() + bijoy_evidence("x") == BijoyEvidence(words=1, hits=0)
