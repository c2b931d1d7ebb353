"""A cell that reads its data from disk, with real PyTorch: what is read, that it is proven, what limits it, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only

SHORT = (
    "--batch",
    "4",
    "--image-size",
    "32",
    "--sequence-length",
    "16",
    "--steps",
    "4",
    "--warmup-steps",
    "2",
    "--warmup-cap",
    "2",
)
ITEMS = 12
DISK = (*SHORT, "--data", "disk", "--threads", "1")


@pytest.fixture(scope="module")
def kept(real_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sealed cache of a first launch, with its data set of images."""
    folder = tmp_path_factory.mktemp("kept")
    words = ("--model", "resnet18", *DISK, "--workers", "0", "--cache", str(folder))
    code, events, stderr = bench(real_python, *words, before=f"import loading\nloading.ITEMS = {ITEMS}")
    assert code == 0, stderr
    loading = only(events, "loading")
    assert loading["kind"] == "images" and loading["place"] == "kept" and loading["items"] == ITEMS
    assert 70e3 < loading["bytes"] / ITEMS < 150e3  # as large as ImageNet's files: 108 kB each
    return folder


def launched(python: str, kept: Path, folder: Path, *words: str, before: str = "", processes: int = 1) -> Any:
    words = ("--model", "resnet18", *DISK, "--cache", str(folder / "work"), "--sealed-cache", str(kept), *words)
    return bench(python, *words, before=before, processes=processes)


@pytest.mark.parametrize(
    "words", [("--workers", "2"), ("--workers", "1", "--decoder", "pillow", "--prefetch", "1")], ids=" ".join
)
def test_images_are_read_decoded_and_proven(real_python: str, kept: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, events, stderr = launched(real_python, kept, tmp_path, *words)
    assert code == 0, stderr
    loading, reference = only(events, "loading"), only(events, "reference")
    assert reference["problems"] == [] and reference["proof"] == "full"
    assert loading["place"] == "kept" and not (tmp_path / "work" / "data").exists()  # read where it is sealed
    assert (
        loading["epochs"] > 1
        and loading["work_seconds"][0] > 0
        and loading["wait_seconds"][0] >= 0
        and loading["window_seconds"] > 0
    )


@pytest.mark.parametrize("model", ["bert-tiny", "lm-10m"])
def test_tokens_are_mapped(real_python: str, tmp_path: Path, model: str) -> None:
    code, events, stderr = bench(real_python, "--model", model, *DISK, "--workers", "1", "--cache", str(tmp_path))
    assert code == 0, stderr
    loading = only(events, "loading")
    assert (loading["kind"], loading["items"], loading["bytes"]) == ("tokens", (1 << 24) // 16, 2 << 24)
    assert only(events, "reference")["problems"] == []


def test_ranks_share_the_items_also_of_a_temporary_data_set(real_python: str, kept: Path, tmp_path: Path) -> None:
    code, events, stderr = launched(real_python, kept, tmp_path, "--workers", "1", processes=2)
    assert code == 0, stderr
    loading = only(events, "loading")
    assert len(loading["wait_seconds"]) == 2 and only(events, "reference")["problems"] == []
    before = f"import os, loading\nloading.ITEMS = {ITEMS}\nimport tempfile; tempfile.tempdir = {str(tmp_path)!r}"
    code, events, stderr = bench(real_python, "--model", "resnet18", *DISK, "--workers", "0", processes=2, before=before)
    assert code == 0, stderr
    assert only(events, "loading")["place"] == "temporary" and not list(tmp_path.glob("torchmatrix-*"))


def test_steps_hold_no_files_open(real_python: str, kept: Path, tmp_path: Path) -> None:
    before = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))"
    words = ("--workers", "1", "--steps", "150", "--batch", "2", "--proof", "none")
    code, _, stderr = launched(real_python, kept, tmp_path, *words, before=before)
    assert code == 0, stderr


def test_classifiers_of_transformers_name_their_images_otherwise(real_python: str, kept: Path, tmp_path: Path) -> None:
    code, events, stderr = launched(real_python, kept, tmp_path, "--model", "vit-small", "--workers", "0")
    assert code == 0 and only(events, "loading")["kind"] == "images", stderr


SABOTAGES = {
    "an item twice in an epoch": "import loading\nloading._Epochs.__iter__ = lambda self: iter([0] * 10**6)",
    "a file that isn't read": "import loading\nfirst = []\ncontent = loading._content\n"
    "def once(path, cold):\n    first.append(content(path, cold)) if not first else None\n    return first[0]\n"
    "loading._content = once",
    "tokens that are another file": "import loading\nwrite = loading.Tokens.write\n"
    "def spoil(folder, batch):\n    index = write(folder, batch)\n    open(folder + '/tokens.bin', 'r+b').write(bytes(8192))\n"
    "    return index\nloading.Tokens.write = spoil",
    "a decoder that does nothing": "import loading, torch\n"
    "loading._by_torchvision = lambda data: torch.zeros(3, 300, 300, dtype=torch.uint8)",
}  # fmt: skip


@pytest.mark.parametrize("name", SABOTAGES)
def test_data_that_was_not_read_is_no_figure(real_python: str, kept: Path, tmp_path: Path, name: str) -> None:
    if "tokens" in name:
        words = ("--model", "lm-1m", *DISK, "--workers", "0", "--seed", "0", "--cache", str(tmp_path))
        before = SABOTAGES[name] + "\nloading.TOKENS = 4096"
        code, events, _ = bench(real_python, *words, before=before)
    else:
        code, events, _ = launched(real_python, kept, tmp_path, "--workers", "0", before=SABOTAGES[name])
    assert code and only(events, "failure")["kind"] == "numerics"
    words = "twice in an epoch" if "twice" in name else "was not read as it was written"
    assert words in only(events, "failure")["message"]


def test_a_slow_loader_is_told_with_its_cause(real_python: str, kept: Path, tmp_path: Path) -> None:
    slow = "import loading, time\n{}"
    decode = "by = loading._by_torchvision\nloading._by_torchvision = lambda data: (time.sleep(0.15), by(data))[1]"
    read = "content = loading._content\nloading._content = lambda path, cold: (time.sleep(0.15), content(path, cold))[1]"
    for code_of, cause in ((decode, "decoding and augmenting took most"), (read, "storage took most")):
        code, events, stderr = launched(real_python, kept, tmp_path, "--workers", "1", before=slow.format(code_of))
        assert code == 0, stderr
        texts = [text for event in events if event["event"] == "remarks" for text in event["texts"]]
        assert any("the loader limits the throughput" in text and cause in text for text in texts), texts


def test_a_cold_page_cache_needs_a_disk_and_images(real_python: str, kept: Path, tmp_path: Path) -> None:
    code, events, stderr = launched(real_python, kept, tmp_path, "--page-cache", "cold", "--workers", "0")
    assert code == 0 or "lies in memory" in only(events, "failure")["message"], stderr
    words = ("--model", "bert-tiny", *DISK, "--page-cache", "cold", "--workers", "0", "--cache", str(tmp_path / "tokens"))
    code, events, _ = bench(real_python, *words)
    assert code and only(events, "failure")["kind"] == "unsupported" and "is for images" in only(events, "failure")["message"]
    if Path("/dev/shm").is_dir():
        words = ("--model", "resnet18", *DISK, "--page-cache", "cold", "--workers", "0")
        code, events, _ = bench(real_python, *words, TMPDIR="/dev/shm")
        assert code and "lies in memory" in only(events, "failure")["message"]


REFUSED = {
    "classifiers of images and for models of text": ("--model", "deeplabv3_resnet50"),
    "is for training": ("--model", "resnet18", "--mode", "infer"),
    "parallel tp all have one": ("--model", "lm-10m", "--parallel", "tp"),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_data_on_disk_is_refused(real_python: str, words: str) -> None:
    code, events, _ = bench(real_python, *DISK, *REFUSED[words], processes=2 if "tp" in words else 1)
    failures = [event for event in events if event["event"] == "failure"]
    assert code and failures and all(one["kind"] == "unsupported" and words in one["message"] for one in failures)


def test_a_profile_is_of_steps_that_load(real_python: str, kept: Path, tmp_path: Path) -> None:
    before = f"import loading, cache, tempfile\nloading.ITEMS = {ITEMS}\ntempfile.tempdir = {str(tmp_path)!r}"
    words = ("--model", "resnet18", *DISK, "--workers", "0", "--profile", "2")
    code, events, stderr = bench(real_python, *words, before=before)
    assert code == 0 and not list(tmp_path.glob("torchmatrix-data-*")), stderr
    assert "decode" in json.dumps(events), [event["event"] for event in events]
