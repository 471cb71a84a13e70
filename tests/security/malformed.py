"""Broken model folders by name: each entry damages a good tiny checkpoint in one way.

The checks that use them are in test_headers_malformed.py and test_headers_process.py.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]
SHARD = "model-00001-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
EMBED = "model.decoder.embed_tokens.weight"
NORM = "model.decoder.norm.weight"


def split(path: Path) -> tuple[dict[str, Any], bytes]:
    """A safetensors file's header and data."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def join(path: Path, header: bytes | dict[str, Any], data: bytes) -> None:
    """Write a safetensors file from any header bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def file(folder: Path) -> Path:
    """The shard that is damaged: the one that holds the embedding."""
    for path in sorted(folder.glob("*.safetensors")):
        if EMBED in split(path)[0]:
            return path
    raise AssertionError("no shard holds the embedding")


def entry(**changes: Any) -> Damage:
    """Change fields of the embedding's header entry; None removes a field."""

    def damage(folder: Path) -> None:
        header, data = split(file(folder))
        for name, value in changes.items():
            if value is None:
                del header[EMBED][name]
            else:
                header[EMBED][name] = value
        join(file(folder), header, data)

    return damage


def header(change: Callable[[dict[str, Any]], Any]) -> Damage:
    """Change the header as an object, or replace it with what `change` returns."""

    def damage(folder: Path) -> None:
        found, data = split(file(folder))
        result = change(found)
        join(file(folder), found if result is None else result, data)

    return damage


def raw(change: Callable[[bytes], bytes]) -> Damage:
    """Change the whole file's bytes."""

    def damage(folder: Path) -> None:
        path = file(folder)
        path.write_bytes(change(path.read_bytes()))

    return damage


def index(change: Callable[[dict[str, Any]], Any]) -> Damage:
    """Change the index as an object, or replace its bytes with what `change` returns."""

    def damage(folder: Path) -> None:
        found = json.loads((folder / INDEX).read_text())
        result = change(found)
        content = result if isinstance(result, bytes) else json.dumps(found).encode()
        (folder / INDEX).write_bytes(content)

    return damage


def config(change: Callable[[dict[str, Any]], Any]) -> Damage:
    """Change config.json as an object, or replace its bytes with what `change` returns."""

    def damage(folder: Path) -> None:
        found = json.loads((folder / "config.json").read_text())
        result = change(found)
        content = result if isinstance(result, bytes) else json.dumps(found).encode()
        (folder / "config.json").write_bytes(content)

    return damage


def shift(name: str, by: int) -> Damage:
    """Move one tensor's data_offsets, leaving its size."""

    def change(found: dict[str, Any]) -> None:
        start, stop = found[name]["data_offsets"]
        found[name]["data_offsets"] = [start + by, stop + by]

    return header(change)


def overlap(found: dict[str, Any]) -> None:
    """Let two tensors of the same size share their bytes."""
    names = [name for name in found if name.endswith("layernorm.weight")]
    found[names[1]]["data_offsets"] = found[names[0]]["data_offsets"]


def rename(found: dict[str, Any], old: str, new: str) -> None:
    """Rename a key, keeping its place."""
    items = [(new if key == old else key, value) for key, value in found.items()]
    found.clear()
    found.update(items)


def point_all(target: str) -> Callable[[dict[str, Any]], None]:
    """Let the index name another file for the embedding."""

    def change(found: dict[str, Any]) -> None:
        found["weight_map"][EMBED] = target

    return change


def replace_by(make: Callable[[Path], None]) -> Damage:
    """Replace the damaged shard by something else."""

    def damage(folder: Path) -> None:
        path = file(folder)
        path.unlink()
        make(path)

    return damage


def outside_link(path: Path) -> None:
    """A good copy of the shard outside the folder, linked from its place."""
    target = path.parent.parent / "elsewhere.safetensors"
    join(target, {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4))
    path.symlink_to(target)


def outside_copy(folder: Path) -> None:
    """The true shard moved out of the folder and linked: valid bytes, wrong place."""
    path = file(folder)
    target = folder.parent / "moved.safetensors"
    path.rename(target)
    path.symlink_to(target)


def duplicate_key(folder: Path) -> None:
    """The same tensor described twice in one header."""
    found, data = split(file(folder))
    twice = json.dumps(found)[:-1] + f', "{EMBED}": {json.dumps(found[EMBED])}}}'
    join(file(folder), twice.encode(), data)


def second_copy(folder: Path) -> None:
    """Two files, no index, the same tensor in both."""
    (folder / INDEX).unlink()
    (folder / "other.safetensors").write_bytes(file(folder).read_bytes())


def only(name: str) -> Damage:
    """No safetensors at all, one file of another format."""

    def damage(folder: Path) -> None:
        for path in [*folder.glob("*.safetensors"), folder / INDEX]:
            path.unlink()
        (folder / name).write_bytes(b"\x80\x04cos\nsystem\n")

    return damage


def index_pipe(folder: Path) -> None:
    """A named pipe in place of the index: opening it the plain way would wait for ever."""
    (folder / INDEX).unlink()
    os.mkfifo(folder / INDEX)


def generation(content: str) -> Damage:
    """Write generation_config.json."""

    def damage(folder: Path) -> None:
        (folder / "generation_config.json").write_text(content)

    return damage


def text(name: str, value: Any) -> Damage:
    """Set a field of text_config."""
    return config(lambda found: found["text_config"].update({name: value}))


HUGE = struct.pack("<Q", 2**63 + 5)
CASES: dict[str, Damage] = {
    # one header
    "empty file": raw(lambda b: b""),
    "seven bytes": raw(lambda b: b[:7]),
    "length only": raw(lambda b: b[:8]),
    "zero length": raw(lambda b: bytes(8) + b[8:]),
    "huge length": raw(lambda b: HUGE + b[8:]),
    "length past the end": raw(lambda b: struct.pack("<Q", len(b)) + b[8:]),
    "length too small": raw(lambda b: struct.pack("<Q", 40) + b[8:]),
    "header cut": raw(lambda b: b[:60]),
    "data cut by one byte": raw(lambda b: b[:-1]),
    "data missing": raw(lambda b: b[: 8 + struct.unpack("<Q", b[:8])[0]]),
    "bytes at the end": raw(lambda b: b + b"\0"),
    "zeros": raw(lambda b: bytes(len(b))),
    "pickle": raw(lambda b: b"\x80\x04cos\nsystem\n" + b[20:]),
    "git lfs pointer": raw(
        lambda b: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    ),
    "header not json": header(lambda h: b"{not json}"),
    "header not utf-8": header(lambda h: b'{"\xff\xfe": 1}'),
    "header a list": header(lambda h: b"[1, 2]"),
    "header a number": header(lambda h: b"12345678"),
    "header with a blank first": header(lambda h: b" " + json.dumps(h).encode()),
    "header nested": header(lambda h: b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "header empty": header(lambda h: b"{}"),
    "key twice": duplicate_key,
    "metadata a list": header(lambda h: h.update(__metadata__=[1])),
    "metadata of numbers": header(lambda h: h.update(__metadata__={"a": 1})),
    # one tensor
    "entry a number": header(lambda h: h.update({EMBED: 5})),
    "entry null": header(lambda h: h.update({EMBED: None})),
    "no dtype": entry(dtype=None),
    "no shape": entry(shape=None),
    "no offsets": entry(data_offsets=None),
    "extra field": entry(strides=[1]),
    "unknown dtype": entry(dtype="F13"),
    "dtype a number": entry(dtype=32),
    "dtype a list": entry(dtype=["F32"]),
    "other dtype": entry(dtype="F16"),
    "float64": entry(dtype="F64", shape=[128, 64]),
    "negative shape": entry(shape=[-256, -64]),
    "one negative size": entry(shape=[-256, 64]),
    "shape of floats": entry(shape=[256.0, 64.0]),
    "shape of bools": entry(shape=[True, 16384]),
    "shape a text": entry(shape="256x64"),
    "shape too large": entry(shape=[2**40, 2**40]),
    "shape enormous": entry(shape=[10**400]),
    "shape of many sizes": entry(shape=[1] * 100 + [16384]),
    "shape of zero": entry(shape=[0, 64]),
    "shape transposed": entry(shape=[64, 256]),
    "shape flat": entry(shape=[16384]),
    "offsets past the end": shift(EMBED, 10**9),
    "offsets negative": shift(EMBED, -4),
    "offsets reversed": entry(data_offsets=[65536, 0]),
    "offsets three": entry(data_offsets=[0, 1, 2]),
    "offsets floats": entry(data_offsets=[0.0, 65536.0]),
    "offsets huge": entry(data_offsets=[2**64, 2**64 + 65536]),
    "overlap": header(overlap),
    "gap": raw(lambda b: b + bytes(65536)),
    "name empty": header(lambda h: rename(h, EMBED, "")),
    "name long": header(lambda h: rename(h, EMBED, "x" * 5000)),
    "name with controls": header(lambda h: rename(h, EMBED, "a\x1b[31m\n\ud800")),
    "name unknown": header(lambda h: rename(h, EMBED, "model.decoder.surprise.weight")),
    # index and folder
    "index not json": index(lambda i: b"{"),
    "index a list": index(lambda i: b"[]"),
    "index without a map": index(lambda i: i.pop("weight_map")),
    "index map empty": index(lambda i: i.update(weight_map={})),
    "index map a list": index(lambda i: i.update(weight_map=[1])),
    "index maps to a number": index(lambda i: i["weight_map"].update({EMBED: 5})),
    "index climbs out": index(point_all("../elsewhere.safetensors")),
    "index absolute": index(point_all("/etc/passwd.safetensors")),
    "index backslash": index(point_all("..\\x.safetensors")),
    "index hidden": index(point_all(".hidden.safetensors")),
    "index nul": index(point_all("a\0b.safetensors")),
    "index surrogate": index(point_all("a\ud800.safetensors")),
    "index not safetensors": index(point_all("model.bin")),
    "index name long": index(point_all("x" * 5000 + ".safetensors")),
    "index names an absent file": index(point_all("model-00009-of-00002.safetensors")),
    "index names the wrong shard": index(
        lambda i: i["weight_map"].update({NORM: SHARD, EMBED: SHARD.replace("00001-", "00002-")})
    ),
    "index lacks a tensor": index(lambda i: i["weight_map"].pop(NORM)),
    "index names an absent tensor": index(
        lambda i: i["weight_map"].update({"model.decoder.more.weight": SHARD})
    ),
    "index key twice": index(lambda i: json.dumps(i)[:-1].encode() + b', "weight_map": {}}'),
    "index is a pipe": index_pipe,
    "shard missing": lambda folder: file(folder).unlink(),
    "shard a folder": replace_by(lambda path: path.mkdir()),
    "shard a pipe": replace_by(lambda path: os.mkfifo(path)),
    "shard a dead link": replace_by(lambda path: path.symlink_to("gone.safetensors")),
    "shard links to itself": replace_by(lambda path: path.symlink_to(path.name)),
    "shard links out": replace_by(outside_link),
    "shard moved out": outside_copy,
    "tensor in two files": second_copy,
    "only pickle": only("pytorch_model.bin"),
    "only gguf": only("model-Q4_K_M.gguf"),
    "no weights": only("notes.txt"),
    # config
    "config missing": lambda folder: (folder / "config.json").unlink(),
    "config empty": config(lambda c: b" "),
    "config cut": config(lambda c: json.dumps(c).encode()[:-20]),
    "config a list": config(lambda c: b"[{}]"),
    "config nested": config(lambda c: b'{"a":' * 90_000),
    "config key twice": config(lambda c: json.dumps(c)[:-1].encode() + b', "dtype": "float32"}'),
    "config another model": config(lambda c: c.update(model_type="gemma4")),
    "config a million layers": text("num_hidden_layers", 10**6),
    "config not a number": text("rms_norm_eps", float("nan")),
    "config more layers": config(
        lambda c: c["text_config"].update(num_hidden_layers=4, layer_types=["full_attention"] * 4)
    ),
    "config fewer layers": config(
        lambda c: c["text_config"].update(num_hidden_layers=2, layer_types=["full_attention"] * 2)
    ),
    "config wider": text("hidden_size", 128),
    "config more experts": text("num_experts", 8),
    "config huge experts": text("num_experts", 2**31 - 1),
    "config other heads": text("num_key_value_heads", 4),
    "generation a list": generation("[]"),
    "generation reversed": generation('{"t_min": 1, "t_max": 0.5}'),
}
