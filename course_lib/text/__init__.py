"""Real input for the course, in Bangla and English, with no download.

documents   load_corpus() · stories() · python_topics() · read_documents("my.txt") · shuffled(…)
spelling    normalize_bangla(text) · graphemes(text)
tokens      load_tokenizer() · train_tokenizer(texts) · Tokenizer
"""

from .bijoy import looks_like_bijoy
from .documents import Document, load_corpus, python_topics
from .files import read_documents
from .graphemes import graphemes
from .normalize import normalize_bangla
from .shuffle import shuffled
from .stories import stories
from .stream import TextStream
from .tokenizer import Piece, Tokenizer, load_tokenizer, train_tokenizer

__all__ = [
    "Document",
    "Piece",
    "TextStream",
    "Tokenizer",
    "graphemes",
    "load_corpus",
    "load_tokenizer",
    "looks_like_bijoy",
    "normalize_bangla",
    "python_topics",
    "read_documents",
    "shuffled",
    "stories",
    "train_tokenizer",
]
