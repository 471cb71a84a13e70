"""Finding the weight files of a folder, and reading single tensors from it."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlx_diffusiongemma.checkpoint.index import is_shard_name, open_checkpoint
from mlx_diffusiongemma.errors import ModelError
from tests.checkpoints import tiny_config, tiny_weights, write_checkpoint

CONFIG = tiny_config()


def test_one_file(tmp_path: Path) -> None:
    weights = tiny_weights(CONFIG)
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, CONFIG, weights))
    assert checkpoint.files == ("model.safetensors",)
    assert set(checkpoint.tensors) == set(weights)
    assert checkpoint.total_bytes == sum(value.nbytes for value in weights.values())
    info = checkpoint.tensors["model.decoder.embed_tokens.weight"]
    assert (info.dtype, info.shape, info.nbytes) == ("F32", (256, 64), 65536)


@pytest.mark.parametrize("index", [True, False])
def test_several_files(index: bool, tmp_path: Path) -> None:
    weights = tiny_weights(CONFIG)
    write_checkpoint(tmp_path, CONFIG, weights, shards=3, index=index)
    checkpoint = open_checkpoint(tmp_path)
    assert len(checkpoint.files) == 3 and set(checkpoint.tensors) == set(weights)
    assert checkpoint.extra_files == ()


def test_files_beside_an_index_are_told(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CONFIG, tiny_weights(CONFIG), shards=2)
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), {"a": mx.zeros(1)})
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.extra_files == ("adapters.safetensors",)
    assert "a" not in checkpoint.tensors


def test_hidden_files_are_not_weights(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CONFIG, tiny_weights(CONFIG))
    (tmp_path / "._model.safetensors").write_bytes(b"\0\5\x16\x07")
    assert open_checkpoint(tmp_path).files == ("model.safetensors",)


def test_a_stale_index_beside_one_whole_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CONFIG, tiny_weights(CONFIG), shards=2)
    for path in tmp_path.glob("model-*.safetensors"):
        path.unlink()
    mx.save_safetensors(str(tmp_path / "model.safetensors"), {"a": mx.zeros(1)})
    with pytest.raises(ModelError, match="is missing") as caught:
        open_checkpoint(tmp_path)
    assert "model.safetensors.index.json" in (caught.value.hint or "")


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        open_checkpoint(tmp_path / "absent")


def hub_cache(root: Path) -> Path:
    """A checkpoint laid out as the hub cache does: snapshot links into the blobs beside it."""
    snapshot = root / "models--owner--name" / "snapshots" / "0123abc"
    blobs = root / "models--owner--name" / "blobs"
    write_checkpoint(snapshot, CONFIG, tiny_weights(CONFIG), shards=2)
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(f"../../blobs/{number}")
    return snapshot


def test_links_into_the_hub_cache_are_followed(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(hub_cache(tmp_path))
    assert checkpoint.read("model.decoder.norm.weight").shape == (64,)


def test_the_hub_cache_may_itself_be_reached_by_a_link(tmp_path: Path) -> None:
    hub_cache(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert open_checkpoint(
        tmp_path / "link" / "models--owner--name" / "snapshots" / "0123abc"
    ).files


def test_links_to_another_repository_are_refused(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    other = tmp_path / "models--other--name" / "blobs"
    other.mkdir(parents=True)
    shard = next(snapshot.glob("*.safetensors"))
    shard.resolve().rename(other / "x")
    shard.unlink()
    shard.symlink_to(other / "x")
    with pytest.raises(ModelError, match="leaves the model folder"):
        open_checkpoint(snapshot)


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CONFIG, tiny_weights(CONFIG))
    (tmp_path / "data").mkdir()
    (tmp_path / "model.safetensors").rename(tmp_path / "data" / "blob")
    (tmp_path / "model.safetensors").symlink_to("data/blob")
    assert open_checkpoint(tmp_path).tensors


def test_reading_keeps_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    weights = tiny_weights(CONFIG)
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, CONFIG, weights, shards=2))
    for _ in range(2):
        for name in ("model.decoder.norm.weight", "model.decoder.embed_tokens.weight"):
            assert np.array_equal(np.array(checkpoint.read(name)), weights[name])
    with pytest.raises(KeyError):
        checkpoint.read("absent")


def test_a_file_replaced_between_check_and_reading(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, tiny_weights(CONFIG))
    checkpoint = open_checkpoint(folder)
    norm = "model.decoder.norm.weight"
    mx.save_safetensors(str(folder / "model.safetensors"), {norm: mx.zeros((1,))})
    for name in (norm, "model.decoder.embed_tokens.weight"):
        with pytest.raises(ModelError, match="has changed"):
            checkpoint.read(name)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="cannot be read"):
        checkpoint.read("model.decoder.layers.0.layer_scalar")


def test_shard_names() -> None:
    assert is_shard_name("model-00001-of-00002.safetensors") and is_shard_name("a b.safetensors")
    for name in ("", "x", ".x.safetensors", "a/b.safetensors", "..\\b.safetensors", None, 5):
        assert not is_shard_name(name)
