"""The type checker of the shape-checking pass, which jaxtyping imports by name."""

from beartype import BeartypeConf, beartype

# An int may stand where a float is asked for, as mypy has it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
