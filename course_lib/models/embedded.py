"""The model that comes with the course: a small OPT, so that everything runs where nothing can be downloaded."""

from __future__ import annotations

from pathlib import Path

LEAN_OPT = "lean-opt-5m"
"""Its name: ``load_model(LEAN_OPT)``, ``python -m course_lib chat lean-opt-5m``."""


def lean_opt_folder() -> Path:
    """The folder of the course's own OPT: 6 layers, 256 numbers wide, 512 positions, tied head, 4,096 tokens.

    It was trained on the course's text, in Bangla and English, from the recipe that lies beside it; the README.md in
    the folder tells how. Raises FileNotFoundError where the installed package lacks it.
    """
    folder = Path(__file__).with_name("data") / LEAN_OPT
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"expected the course's model in {folder}, which holds none. Reinstall the course, or train the model "
            "anew by `make model`."
        )
    return folder
