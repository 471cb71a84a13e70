"""Model names: local paths never reach the network, hub failures are one sentence each."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from mlx_diffusiongemma.checkpoint.hub import missing_files, resolve
from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.weights import load_weights
from mlx_diffusiongemma.config import read_config
from mlx_diffusiongemma.errors import (
    DiffusionGemmaError,
    ModelError,
    NetworkError,
    OutputError,
    UsageError,
)
from tests.checkpoints import TINY_GENERATION, tiny_config, tiny_weights, write_checkpoint

REPO = "owner/name"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    config = tiny_config()
    folder = write_checkpoint(
        tmp_path / "model", config, tiny_weights(config), shards=2, generation=TINY_GENERATION
    )
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to resolve a name or open a connection, all of which fail."""
    seen: list[Any] = []

    def refuse(*args: Any, **_: Any) -> Any:
        seen.append(args)
        raise OSError(errno.ENETUNREACH, "no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    return seen


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The hub's download function replaced by one that must not be called."""
    made: list[dict[str, Any]] = []

    def refuse(*args: Any, **kwargs: Any) -> str:
        made.append(kwargs)
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    return made


def test_a_local_folder_needs_no_connection(
    model: Path, attempts: list[Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    for name in (str(model), "./model", "model", "model/", "../" + model.parent.name + "/model"):
        assert resolve(name).samefile(model)
    assert load_weights(open_checkpoint(model), read_config(model)).weights
    assert attempts == calls == []


@pytest.mark.parametrize(
    "name",
    ["./absent", "/absent/x", "~/absent-model", "../a/b", "a/b/c", "a/", "a\\b", "~nobody/x"],
)
def test_what_looks_local_and_is_absent_stays_local(
    name: str, attempts: list[Any], calls: list[Any]
) -> None:
    with pytest.raises(ModelError, match="There is no model folder"):
        resolve(name)
    assert attempts == calls == []


@pytest.mark.parametrize(
    "name",
    ["absent", "a b/c", "owner/na me", "a..b/c", "owner/--x", "\0", "x" * 5000, "own\ud800/x"],
)
def test_what_is_neither_path_nor_repository(
    name: str, attempts: list[Any], calls: list[Any]
) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(name)
    assert caught.value.message.isascii() and len(caught.value.message) < 250
    assert attempts == calls == []


def test_a_folder_named_like_a_repository_wins(
    tmp_path: Path, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve(REPO) == Path(REPO)
    assert calls == []


def test_home_is_expanded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(model.parent))
    assert resolve("~/model") == model


def test_a_file_is_not_a_folder(model: Path) -> None:
    with pytest.raises(ModelError, match="is a file, not a model folder"):
        resolve(str(model / "config.json"))


def test_the_demo_is_part_of_the_package(calls: list[Any]) -> None:
    folder = resolve("demo")
    assert folder.name == "demo" and folder.parent.name == "mlx_diffusiongemma"
    assert folder.is_dir() and calls == []


def test_usage_errors(model: Path) -> None:
    for name, revision in (("", None), ("  ", None), ("demo", "main"), (str(model), "main")):
        with pytest.raises(UsageError):
            resolve(name, revision)


def download(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any]
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Replace the download function by `answer` and note its calls."""
    made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def snapshot_download(*args: Any, **kwargs: Any) -> Any:
        made.append((args, kwargs))
        return answer(*args, **kwargs)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return made


def test_small_files_come_first_and_weights_from_the_same_commit(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = model / "model-00001-of-00002.safetensors"
    shard.rename(model / "later")

    def answer(*_: Any, allow_patterns: list[str], **__: Any) -> str:
        if "*.safetensors" in allow_patterns:
            (model / "later").rename(shard)
        return str(model)

    made = download(monkeypatch, answer)
    assert resolve(REPO, "v2") == model
    (first, small), (_, whole) = made
    assert first == (REPO,) and (small["revision"], whole["revision"]) == ("v2", "model")
    assert "*.safetensors" not in small["allow_patterns"]
    assert "*.safetensors" in whole["allow_patterns"]
    for kwargs in (small, whole):
        assert not any(".bin" in p or ".py" in p or p == "*" for p in kwargs["allow_patterns"])
        assert kwargs["ignore_patterns"] == ["*/*"]


def test_another_model_is_refused_before_its_weights_are_fetched(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "config.json").write_text(json.dumps(tiny_config(model_type="gemma4")))
    made = download(monkeypatch, lambda *a, **k: str(model))
    with pytest.raises(ModelError, match="gemma4"):
        resolve(REPO)
    assert len(made) == 1


def response(status: int) -> Any:
    return SimpleNamespace(headers={}, request=None, status_code=status)


HTTP = errors.HfHubHTTPError
FAILURES: list[tuple[Callable[[], BaseException], type[DiffusionGemmaError], str]] = [
    (
        lambda: errors.GatedRepoError("x", response=response(403)),
        ModelError,
        "Access to 'owner/name' is restricted by its owner.",
    ),
    (
        lambda: errors.RepositoryNotFoundError("x", response=response(404)),
        ModelError,
        "There is no repository 'owner/name' on the hub, or it is private.",
    ),
    (
        lambda: errors.RevisionNotFoundError("x", response=response(404)),
        ModelError,
        "The repository 'owner/name' has no revision 'v2'.",
    ),
    (lambda: errors.HFValidationError("x"), ModelError, "not a valid name"),
    (lambda: HTTP("x", response=response(503)), NetworkError, "answered with error 503"),
    (lambda: HTTP("x", response=response(429)), NetworkError, "answered with error 429"),
    (lambda: errors.LocalEntryNotFoundError("x"), NetworkError, "The hub cannot be reached, and"),
    (lambda: errors.OfflineModeIsEnabled("x"), NetworkError, "offline mode is on"),
    (lambda: HTTP.__bases__[0]("x"), NetworkError, "The connection to the hub failed"),
    (lambda: ConnectionResetError(errno.ECONNRESET, "reset"), NetworkError, "failed"),
    (lambda: TimeoutError("slow"), NetworkError, "failed"),
    (lambda: RuntimeError("Data processing error"), NetworkError, "failed"),
    (lambda: OSError(errno.ENOSPC, "No space left on device"), OutputError, "No space left"),
    (lambda: PermissionError(errno.EACCES, "Permission denied"), OutputError, "cannot be written"),
]


@pytest.mark.parametrize(("make", "kind", "sentence"), FAILURES)
def test_each_failure_is_one_sentence(
    make: Callable[[], BaseException],
    kind: type[DiffusionGemmaError],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise make()

    download(monkeypatch, fail)
    with pytest.raises(DiffusionGemmaError) as caught:
        resolve(REPO, "v2")
    assert type(caught.value) is kind and sentence in caught.value.message
    assert caught.value.message.endswith(".") and "\n" not in caught.value.message
    assert caught.value.exit_code == {ModelError: 3, NetworkError: 5, OutputError: 6}[kind]


def test_ctrl_c_is_not_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    download(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        resolve(REPO)


# ---- the library itself on a cache made by hand, without a network ----


@pytest.fixture
def cache(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds owner/name as the library lays it out; returns the snapshot."""
    root = tmp_path / "hub"
    repo = root / "models--owner--name"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "blobs").mkdir()
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for path in model.iterdir():
        path.rename(repo / "blobs" / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    return snapshot


@pytest.fixture(params=["variable", "constant"])
def offline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline mode, set before or after the library was imported."""
    if request.param == "variable":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    else:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("offline")
def test_offline_a_cached_repository_works(cache: Path, attempts: list[Any]) -> None:
    for revision in (None, "main", COMMIT):
        folder = resolve(REPO, revision)
        assert folder.samefile(cache)
        assert load_weights(open_checkpoint(folder), read_config(folder)).weights
    assert attempts == []


@pytest.mark.usefixtures("offline")
def test_offline_a_half_cached_repository_names_all_that_is_missing(
    cache: Path, attempts: list[Any]
) -> None:
    for name in ("tokenizer.json", "model-00001-of-00002.safetensors"):
        (cache / name).unlink()
    with pytest.raises(NetworkError) as caught:
        resolve(REPO)
    assert caught.value.message == (
        "The local copy of 'owner/name' is incomplete: "
        "tokenizer.json, model-00001-of-00002.safetensors are missing."
    )
    assert attempts == []


@pytest.mark.usefixtures("offline")
def test_offline_a_listing_in_the_cache_makes_no_difference(
    cache: Path, attempts: list[Any]
) -> None:
    names = [path.name for path in cache.iterdir()]
    listing = {name: {"size": 1, "blob_id": "0" * 40} for name in names}
    trees = cache.parent.parent / "trees"
    trees.mkdir()
    content = {"format_version": 1, "files": listing}
    (trees / f"{COMMIT}.json").write_text(json.dumps(content))
    assert resolve(REPO).samefile(cache)
    (cache / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(NetworkError, match=r"model-00002-of-00002\.safetensors is missing"):
        resolve(REPO)
    assert attempts == []


@pytest.mark.usefixtures("offline", "cache")
def test_offline_an_unknown_repository_or_revision(attempts: list[Any]) -> None:
    for name, revision in (("owner/other", None), (REPO, "v9")):
        with pytest.raises(NetworkError, match="offline mode is on") as caught:
            resolve(name, revision)
        assert name in caught.value.message and (revision or "") in caught.value.message
    assert attempts == []


def test_a_cached_commit_needs_no_connection(cache: Path, attempts: list[Any]) -> None:
    assert resolve(REPO, COMMIT).samefile(cache)
    assert attempts == []


def test_without_a_network_a_cached_repository_works(cache: Path, attempts: list[Any]) -> None:
    assert resolve(REPO).samefile(cache)
    assert attempts != []


@pytest.mark.usefixtures("cache")
def test_without_a_network_an_unknown_repository(attempts: list[Any]) -> None:
    with pytest.raises(NetworkError, match="The hub cannot be reached"):
        resolve("owner/other")
    assert attempts != []


def test_what_a_loadable_folder_needs(model: Path) -> None:
    assert missing_files(model) == []
    (model / "tokenizer.json").rename(model / "tokenizer.model")
    assert missing_files(model) == []
    for path in model.iterdir():
        path.unlink()
    assert missing_files(model) == ["config.json", "tokenizer.json", "the .safetensors files"]
