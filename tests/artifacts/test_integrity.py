"""What is damaged does not count: artifacts that are not what was written, shards of unfinished ones, caches."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pytest
from pyarrow.parquet import write_table

from judgetrain.artifacts import integrity
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import sha256_of, write_json_atomic
from judgetrain.artifacts.fingerprint import ContentHashes
from judgetrain.artifacts.integrity import checked, damage, read_manifest, sealed
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, adopt
from judgetrain.errors import DataError


def shown(index: int, items: Sequence[int]) -> ShardResult:
    return ShardResult([{"value": i} for i in items], len(items))


def out(directory: Path) -> StageRun:
    return StageRun(directory, directory.parent.name, 1, Console())


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Return a finished artifact: two shards, a table, and weights."""
    stage = out(tmp_path / "o" / "artifacts" / "tree" / "t1")
    stage.sharded("trees", range(8), 4, shown)
    write_table(pyarrow.table({"a": list(range(1000))}), stage.path("predictions.parquet"))
    stage.path("model").mkdir()
    (stage.path("model") / "model.safetensors").write_bytes(bytes(range(256)) * 10)
    parts = {"stage": "tree", "fingerprint": "t1", "upstream": {}}
    hashes = ContentHashes.of_run(stage.home)
    write_json_atomic(stage.path("manifest.json"), sealed(stage.directory, parts, hashes))
    return stage.directory


def wrong(artifact: Path, large: bool = True) -> str | None:
    return damage(artifact, ContentHashes.of_run(artifact.parents[2]), large=large)


def test_a_manifest_tells_the_size_and_hash_of_every_file(artifact: Path) -> None:
    manifest = read_manifest(artifact)
    assert manifest is not None and wrong(artifact) is None and checked(artifact) == manifest
    files = manifest["files"]
    assert {"trees-00001-of-00002.jsonl", "predictions.parquet"} < set(files)
    assert files["model/model.safetensors"]["bytes"] == 2560 and len(files["model/model.safetensors"]["sha256"]) == 64
    assert ".lock" not in files and ".seconds.json" not in files


def test_turned_bits_lost_files_and_other_manifests_are_seen(artifact: Path) -> None:
    weights = artifact / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert wrong(artifact, large=False) == "model.safetensors holds other bytes than were written"
    weights.write_bytes(whole)
    assert wrong(artifact) is None
    (artifact / "predictions.parquet").unlink()
    weights.unlink()
    assert wrong(artifact) == "model.safetensors is missing (and 1 other files)"
    text = (artifact / "manifest.json").read_text()
    for other in (text.replace('"t1"', '"t2"'), text.replace('"checksum"', '"checksun"'), text[:-40], "", "[]", "\0"):
        (artifact / "manifest.json").write_text(other)
        with pytest.raises(DataError, match=r"t1 is damaged: manifest\.json .*stage tree has to be made again"):
            read_manifest(artifact)


def test_an_artifact_in_the_place_of_another_is_seen_and_a_copy_may_have_any_name(artifact: Path) -> None:
    for place in ("tree/t2", "sft/t1"):
        shutil.copytree(artifact, artifact.parents[1] / place)
        assert wrong(artifact.parents[1] / place) == "manifest.json is that of tree/t1"
    copy = artifact.parents[3] / "mine"
    shutil.copytree(artifact, copy)
    assert checked(copy) == checked(artifact)
    (artifact / "manifest.json").write_text('{"rows": 1}')
    assert wrong(artifact) == "manifest.json is no manifest"


def test_large_files_are_read_once_and_only_for_a_stage_that_reads_them(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "SMALL", 1000)
    weights = artifact / "model" / "model.safetensors"
    read = list[str]()

    def counted(path: Path) -> str:
        read.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr("judgetrain.artifacts.fingerprint.sha256_of", counted)
    whole = weights.read_bytes()
    assert wrong(artifact) is None and read == [], "known since it was written"
    weights.write_bytes(whole)
    assert wrong(artifact, large=False) is None and read == []
    assert wrong(artifact) is None and wrong(artifact) is None and read == ["model.safetensors"]
    weights.write_bytes(whole[::-1])
    assert wrong(artifact, large=False) is None
    assert wrong(artifact) == "model.safetensors holds other bytes than were written"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\x00", b'{"checksum": "x", "hashes": {}}', b'{"a": "b"}'])
def test_a_broken_file_of_hashes_is_made_again(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    cache = tmp_path / ".content-hashes.json"
    hashes = ContentHashes.of_run(tmp_path).of(str(tmp_path / "data"))
    whole = cache.read_bytes()
    cache.write_bytes(content)
    assert ContentHashes.of_run(tmp_path).of(str(tmp_path / "data")) == hashes
    assert cache.read_bytes() == whole


def test_a_name_with_brackets_is_that_file_and_no_glob(tmp_path: Path) -> None:
    place = tmp_path / "out[1]"
    place.mkdir()
    for name in ("rows[1].jsonl", "rows1.jsonl"):
        (place / name).write_text(name)
    hashes = ContentHashes(None)
    assert [*hashes.of(f"{place}/rows[1].jsonl")] == ["rows[1].jsonl"]
    assert [*hashes.of(f"{place}/*.json*")] == ["rows1.jsonl", "rows[1].jsonl"]


def test_a_remembered_hash_that_is_wrong_makes_nothing_damaged(artifact: Path) -> None:
    hashes = ContentHashes.of_run(artifact.parents[2])
    hashes._known = {place: [*seen[:-1], "0" * 64] for place, seen in hashes._known.items()}
    assert damage(artifact, hashes, large=True) is None


def test_shards_that_were_cut_before_the_stage_was_finished_are_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[int] = []

    def process(index: int, items: Sequence[int]) -> ShardResult:
        done.append(index)
        return shown(index, items)

    first = out(tmp_path / "tree" / "a")
    first.sharded("trees", range(16), 4, process)
    names = [f"trees-{i:05d}-of-00004.jsonl" for i in range(4)]
    first.path(names[1]).write_bytes(b"")
    first.path(names[2]).write_bytes(first.path(names[2]).read_bytes()[:30])
    first.path(f".{names[3].removesuffix('l')}").write_text("{")
    done.clear()
    again = out(tmp_path / "tree" / "a")
    again.sharded("trees", range(16), 4, process)
    assert done == [1, 2, 3] and [row["value"] for row in read_rows(again.directory, "trees")] == list(range(16))
    assert again.totals()["counts"]["out"] == 16
    assert "tree: trees-00001-of-00004 is not what was written: it is made again" in capsys.readouterr().out


def test_shards_of_others_are_taken_over_only_whole(tmp_path: Path) -> None:
    first = out(tmp_path / "tree" / "a")
    adopt("trees", "key", first)
    first.sharded("trees", range(8), 4, shown)
    first.path("trees-00001-of-00002.jsonl").write_text('{"value": 4}\n')
    second = out(tmp_path / "tree" / "b")
    adopt("trees", "key", second)
    assert [p.name for p in sorted(second.directory.glob("*.jsonl"))] == ["trees-00000-of-00002.jsonl"]


def test_unfinished_work_with_broken_notes_says_what_to_remove(tmp_path: Path) -> None:
    stage = out(tmp_path / "tree" / "a")
    stage.note("a", 1)
    stage.path(".notes.json").write_text("{")
    with pytest.raises(DataError, match=r"\.notes\.json is damaged: remove .*tree/a, .* run the same command again"):
        out(tmp_path / "tree" / "a")


def test_a_row_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2: not UTF-8 text"):
        list(read_rows(tmp_path, "rows"))
