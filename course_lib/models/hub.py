"""Models of the Hugging Face hub: downloaded once, of one revision, and found again without a network."""

from __future__ import annotations

from pathlib import Path

ALWAYS = ("config.json", "generation_config.json", "*token*.json", "vocab.json", "merges.txt")
WEIGHTS = (("*.safetensors", "*.safetensors.index.json"), ("*.bin", "*.bin.index.json"))
"""The first kind that a model has is fetched: many have both, and one is enough."""


def hub_folder(name: str, *, revision: str | None = None) -> Path:
    """The folder with the files of the model ``name`` ("facebook/opt-125m"), downloaded unless they are there.

    What is interrupted goes on at the next call. The commit that ``revision`` (None: the main branch) stands for is
    looked up first, so that all files are of one version: it is the folder's name. Without a network, or with
    HF_HUB_OFFLINE=1, what was downloaded before is used. Raises FileNotFoundError that says what is not there.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError:
        raise ImportError(
            f"path: got {name!r}, which is no folder here, and huggingface_hub is not installed to look for it: "
            "pip install huggingface_hub"
        ) from None
    online = not hub.constants.HF_HUB_OFFLINE
    if online:
        try:
            info = hub.HfApi().model_info(name, revision=revision)
        except errors.RepositoryNotFoundError:
            raise FileNotFoundError(
                f"path: expected a folder or the id of a model, got {name!r}: no such folder is here, and the hub has "
                "no model of that name, or none that may be read without an account."
            ) from None
        except errors.RevisionNotFoundError:
            raise FileNotFoundError(
                f"revision: expected a branch, tag or commit of {name}, got {revision!r}, which the hub does not know."
            ) from None
        except (OSError, errors.HfHubHTTPError, errors.OfflineModeIsEnabled):
            online = False  # no network, or none that answers
        except Exception as error:
            # The hub's HTTP library differs from version to version, and has no error that is an OSError.
            if not type(error).__module__.startswith(("httpx", "httpcore", "requests")):
                raise
            online = False
        else:
            there = {sibling.rfilename for sibling in info.siblings or ()}
            kinds = [kind for kind in WEIGHTS if any(file.endswith(kind[0][1:]) for file in there)]
            patterns = [*ALWAYS, *(kinds[0] if kinds else ())]
            return Path(hub.snapshot_download(name, revision=info.sha, allow_patterns=patterns))
    try:
        return Path(hub.snapshot_download(name, revision=revision, local_files_only=True))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, FileNotFoundError):
        version = "" if revision is None else f" of revision {revision!r}"
        raise FileNotFoundError(
            f"path: expected a folder or a model that was downloaded before, got {name!r}{version}: no such folder is "
            "here, the hub cannot be reached, and no earlier download was found. Connect once, or pass a folder."
        ) from None
