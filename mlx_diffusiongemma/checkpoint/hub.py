"""From what the user named to a local folder: a path, the bundled demo, or a hub repository.

All of resolving, downloading, resuming and caching is huggingface_hub's; this file decides when to
ask it, what to ask for, and says in one sentence what went wrong.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from mlx_diffusiongemma.checkpoint.index import INDEX_FILE, SUFFIX, indexed_files
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.config.jsonfile import shown, shown_path
from mlx_diffusiongemma.errors import (
    DiffusionGemmaError,
    ModelError,
    NetworkError,
    OutputError,
    UsageError,
)

DEMO = "demo"
SMALL_FILES = (
    "config.json",
    "generation_config.json",
    INDEX_FILE,
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
_SUBFOLDERS = "*/*"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ONLINE = "Connect to the network, unset HF_HUB_OFFLINE, and run the command again."


def resolve(path_or_repo: str, revision: str | None = None) -> Path:
    """The local folder of a model.

    `path_or_repo` is a folder, "demo" for the bundled model, or a hub repository "owner/name", of
    which `revision` (a branch, tag or commit) may choose a version. What exists, or looks like a
    path, never goes to the network. Raises UsageError, ModelError (no such folder, repository or
    revision; no access; not a DiffusionGemma model), NetworkError, OutputError (cache not
    writable).
    """
    if not path_or_repo.strip():
        raise UsageError("The model name is empty.")
    if path_or_repo == DEMO or looks_local(path_or_repo):
        if revision is not None:
            raise UsageError("A revision can only be chosen for a hub repository.")
        if path_or_repo == DEMO:
            return Path(__file__).resolve().parent.parent / "demo"
        return _local_folder(path_or_repo)
    if not _REPO.fullmatch(path_or_repo) or ".." in path_or_repo or "--" in path_or_repo:
        raise ModelError(
            f"There is no folder {shown(path_or_repo)}, and it is not a hub repository's name.",
            "A repository is written owner/name, for example google/diffusiongemma-26B-A4B-it.",
        )
    return _download(path_or_repo, revision)


def looks_local(name: str) -> bool:
    """True for a path that exists or is written like one; such a name never reaches the hub."""
    return (
        name.startswith((".", "/", "~", "\\"))
        or name.endswith(("/", "\\"))
        or "\\" in name
        or name.count("/") > 1
        or os.path.exists(name)
    )


def _local_folder(name: str) -> Path:
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return Path(path)
    if os.path.exists(path):
        raise ModelError(
            f"{shown_path(name)} is a file, not a model folder.",
            f"Give the folder that holds config.json and the {SUFFIX} files.",
        )
    raise ModelError(f"There is no model folder {shown_path(name)}.")


def _download(repo: str, revision: str | None) -> Path:
    """Small files first: a wrong model is refused before its weights are fetched."""
    offline = _offline()
    if revision is not None and not offline and _COMMIT.fullmatch(revision):
        # A commit never changes: once it is in the cache there is nothing to ask.
        try:
            folder = _snapshot(repo, revision, SMALL_FILES, offline=True)
        except NetworkError:
            folder = None
        if folder is not None and _is_whole(folder):
            return folder
    folder = _snapshot(repo, revision, SMALL_FILES, offline=offline)
    if not (folder / "config.json").exists():
        raise _incomplete(repo, missing_files(folder))
    read_config(folder)
    if not _is_whole(folder):
        # The folder is named after the commit: the weights come from the same one.
        folder = _snapshot(repo, folder.name, (*SMALL_FILES, f"*{SUFFIX}"), offline=offline)
    missing = missing_files(folder)
    if missing:
        raise _incomplete(repo, missing)
    return folder


def _is_whole(folder: Path) -> bool:
    """True when nothing is missing and that can be known: by an index or the one file's name."""
    known = (folder / INDEX_FILE).exists() or (folder / f"model{SUFFIX}").exists()
    return known and not missing_files(folder)


def missing_files(folder: Path) -> list[str]:
    """The files without which a model folder cannot be loaded, in words."""
    missing = [] if (folder / "config.json").exists() else ["config.json"]
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model")):
        missing.append("tokenizer.json")
    if (folder / INDEX_FILE).exists():
        missing += [name for name in indexed_files(folder) if not (folder / name).exists()]
    elif not any(folder.glob(f"*{SUFFIX}")):
        missing.append(f"the {SUFFIX} files")
    return missing


def _incomplete(repo: str, missing: list[str]) -> NetworkError:
    listed = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    verb = "is" if len(missing) == 1 else "are"
    return NetworkError(
        f"The local copy of {shown(repo)} is incomplete: {listed} {verb} missing.",
        f"{_ONLINE} What stays missing then is not in the repository.",
    )


def _offline() -> bool:
    from huggingface_hub import constants

    # The library reads the variable once, at import; a later setting counts as well.
    now = os.environ.get("HF_HUB_OFFLINE", "").strip().upper()
    return bool(constants.HF_HUB_OFFLINE) or now in ("1", "ON", "YES", "TRUE")


def _snapshot(repo: str, revision: str | None, patterns: tuple[str, ...], *, offline: bool) -> Path:
    import huggingface_hub
    from huggingface_hub import errors

    http_error: type[Exception] = getattr(errors, "HTTPError", errors.HfHubHTTPError)
    try:
        return Path(
            huggingface_hub.snapshot_download(
                repo,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=[_SUBFOLDERS],
                local_files_only=offline,
            )
        )
    except errors.LocalEntryNotFoundError as error:
        partial = getattr(error, "snapshot_path", None)
        if partial is not None:
            raise _incomplete(repo, missing_files(Path(partial)) or ["a smaller file"]) from None
        raise _not_cached(repo, revision, offline) from None
    except errors.OfflineModeIsEnabled:
        raise _not_cached(repo, revision, True) from None
    except (http_error, errors.HFValidationError) as error:
        raise _http_failure(repo, revision, error) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: the transfer library's own failures
        raise _transfer_failure(repo, error) from None


def _not_cached(repo: str, revision: str | None, offline: bool) -> NetworkError:
    version = f" at revision {shown(revision)}" if revision else ""
    if offline:
        return NetworkError(
            f"{shown(repo)}{version} is not in the local cache, and offline mode is on.", _ONLINE
        )
    return NetworkError(
        f"The hub cannot be reached, and {shown(repo)}{version} is not in the local cache.",
        "Check the network connection, or give a local folder.",
    )


def _http_failure(repo: str, revision: str | None, error: Exception) -> DiffusionGemmaError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelError(
            f"Access to {shown(repo)} is restricted by its owner.",
            "Accept the conditions on its page on the hub, then run `hf auth login`.",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelError(
            f"There is no repository {shown(repo)} on the hub, or it is private.",
            "Check the name; for a private repository run `hf auth login`.",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelError(f"The repository {shown(repo)} has no revision {shown(revision)}.")
    if isinstance(error, errors.HFValidationError):
        return ModelError(f"{shown(repo)} is not a valid name for a hub repository.")
    if isinstance(error, errors.HfHubHTTPError):
        code = getattr(error.response, "status_code", "?")
        return NetworkError(f"The hub answered with error {code} for {shown(repo)}.")
    return NetworkError(
        f"The connection to the hub failed while {shown(repo)} was fetched.",
        "Run the command again: what was fetched is kept.",
    )


def _transfer_failure(repo: str, error: OSError | RuntimeError) -> DiffusionGemmaError:
    local = isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
    )
    if isinstance(error, OSError) and local:
        return OutputError(
            f"The hub cache cannot be written: {error.strerror}.",
            "Free some space, or set HF_HOME to another folder.",
        )
    return NetworkError(
        f"The download of {shown(repo)} failed.",
        "Run the command again: what was fetched is kept.",
    )
