"""Models of the Hugging Face hub: downloaded once, of one revision, and found again without a network."""

from __future__ import annotations

import errno
from pathlib import Path

from .tensor_files import BIN, INDEX, SAFETENSORS

ALWAYS = ("config.json", "generation_config.json", "*token*.json", "vocab.json", "merges.txt")
CARD = "README.md"
"""Fetched for the licence it states; what was downloaded without it is whole as well."""
WEIGHTS = {
    SAFETENSORS: (SAFETENSORS, "model-*.safetensors", SAFETENSORS + INDEX),
    BIN: (BIN, "pytorch_model-*.bin", BIN + INDEX),
}
"""The first kind that a model has is fetched: many have both, and one is enough; adapters and the like are not it."""

OF_THE_DISK = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EIO,
    errno.ENAMETOOLONG,
}
"""Errors that no network is to blame for."""


def hub_folder(name: str, *, revision: str | None = None) -> Path:
    """The folder with the files of the model ``name`` ("facebook/opt-125m"), downloaded unless they are there.

    What is interrupted goes on at the next call. All files are of the one commit that ``revision`` (None: the main
    branch) stands for at the start: it is the folder's name. Without a network, or with
    HF_HUB_OFFLINE=1, what was downloaded before is used. Raises FileNotFoundError that says what is not there.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import constants, errors  # no attributes of the package until imported
    except ImportError:
        raise ImportError(
            f"path: got {name!r}, which is no folder here, and huggingface_hub is not installed to look for it: "
            "pip install huggingface_hub"
        ) from None
    if not constants.HF_HUB_OFFLINE:
        try:
            there = hub.HfApi().model_info(name, revision=revision).siblings or ()
            listed = {file.rfilename for file in there}
            kinds = [files for kind, files in WEIGHTS.items() if {kind, kind + INDEX} & listed]
            # By the name of the revision, not by its commit: so it is found again when the network is gone.
            patterns = [*ALWAYS, CARD, *(kinds[0] if kinds else ())]
            return Path(hub.snapshot_download(name, revision=revision, allow_patterns=patterns))
        except errors.HFValidationError as error:
            raise ValueError(
                f"path: expected a folder or the id of a model as author/name, got {name!r}: no such folder is here, "
                f"and no model is called so ({error})."
            ) from None
        except errors.RepositoryNotFoundError:
            raise FileNotFoundError(
                f"path: expected a folder or the id of a model, got {name!r}: no such folder is here, and the hub has "
                "no model of that name, or none that may be read without an account."
            ) from None
        except errors.RevisionNotFoundError:
            raise FileNotFoundError(
                f"revision: expected a branch, tag or commit of {name}, got {revision!r}, which the hub does not know."
            ) from None
        except (errors.HfHubHTTPError, errors.OfflineModeIsEnabled):
            pass  # no hub that answers to the end: an earlier download may do
        except OSError as error:
            if error.errno in OF_THE_DISK:
                raise OSError(
                    error.errno,
                    f"path: {name} could not be written to the cache of downloads: {error.strerror}.",
                    error.filename,
                ) from error
            # no network: an earlier download may do
        except Exception as error:
            # The hub's HTTP library differs from version to version, and has no error that is an OSError.
            if not type(error).__module__.startswith(("httpx", "httpcore", "requests")):
                raise
    for kind, files in WEIGHTS.items():
        try:  # by the patterns it was fetched with: without, what was left out counts as missing
            patterns = [*ALWAYS, *files]
            folder = Path(
                hub.snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=True)
            )
        except (errors.HFValidationError, FileNotFoundError):
            continue
        if (folder / kind).is_file() or (folder / (kind + INDEX)).is_file():
            return folder
    version = "" if revision is None else f" of revision {revision!r}"
    raise FileNotFoundError(
        f"path: expected a folder or a model that was downloaded before, got {name!r}{version}: no such folder is "
        "here, the hub cannot be reached, and no earlier download was found whole. Connect and call again, or pass "
        "a folder."
    )
