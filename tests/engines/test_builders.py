"""Two builders, one meaning: the same Dockerfiles, and a failure said in the words of the step that failed."""

import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from torchmatrix.core import assets
from torchmatrix.core.errors import BuildFailed
from torchmatrix.engines import builders
from torchmatrix.engines.endpoints import Endpoint

WHERE = Endpoint(host="unix:///nowhere.sock")
BUILD = builders.Build(
    files={}, dockerfile="Dockerfile", arguments={"BASE": "nvcr.io/nvidia/pytorch:25.02-py3"}, tag="t", labels={}
)


def said(lines: str) -> str:
    build_log = builders._BuildLog()
    for line in lines.strip().splitlines():
        build_log.add(builders.plain(line))
    return build_log.failure(BUILD)


def test_buildx_keeps_downloads_for_every_step_that_installs_and_changes_nothing_else() -> None:
    text = (assets.IMAGES / "wheels.Dockerfile").read_text()
    cached = builders.with_cache(text)
    assert cached.count("RUN --mount=type=cache,target=/root/.cache/uv") == text.count("\nRUN sh /opt/build/install.sh") == 5
    assert cached.replace(f"{builders.CACHE} ", "") == text


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        # Docker's own builder
        (
            "Step 1/9 : ARG BASE\nStep 2/9 : FROM ${BASE}\npull access denied",
            "base image nvcr.io/nvidia/pytorch:25.02-py3: pull access denied",
        ),
        (
            "Step 8/9 : RUN python3 guard check\nerror: torch/nn.py is not the vendor's any more",
            "RUN: torch/nn.py is not the vendor's any more",
        ),
        ("Step 4/9 : COPY a b\nno space left on device", "COPY: no space left on device"),
        # buildx, as 0.13 prints it with --progress plain
        (
            "#2 [internal] load metadata for docker.io/library/nothing:1\n"
            "#5 [ 8/12] RUN sh /opt/build/install.sh rest.txt\n"
            "#5 0.412 error: Failed to fetch: `http://127.0.0.1:9/simple/numpy/`\n"
            '#5 ERROR: process "/bin/sh -c sh /opt/build/install.sh rest.txt" did not complete successfully: exit code: 2',
            "RUN: Failed to fetch: `http://127.0.0.1:9/simple/numpy/`",
        ),
        (
            "#2 [internal] load metadata for docker.io/library/nothing:1\n#2 ERROR: no such host\n"
            "ERROR: failed to solve: docker.io/library/nothing:1: no such host",
            "base image nvcr.io/nvidia/pytorch:25.02-py3: no such host",
        ),
    ],
)
def test_a_failure_names_the_step_and_what_it_said(lines: str, failure: str) -> None:
    assert said(lines) == failure


def test_proxies_are_found_in_both_spellings_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*builders.proxies(), "TORCHMATRIX_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://user:word@127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.setenv("PIP_PROXY", "x")
    assert builders.proxies() == {"https_proxy": "http://user:word@127.0.0.1:1", "NO_PROXY": "localhost"}


def test_buildx_reads_the_whole_context_and_its_lines_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\ncat > {tmp_path}/context.tar\necho "#1 [1/1] RUN make"\necho "#1 0.5 no rule"\nexit $CODE\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CODE", "0")
    files = {"Dockerfile": b"FROM scratch\n", "large": b"x" * 1_000_000}
    log: list[str] = []
    builders.buildx(WHERE, replace(BUILD, files=files), log.append)
    with tarfile.open(tmp_path / "context.tar") as tar:
        assert tar.getnames() == ["Dockerfile", "large"] and tar.getmember("large").size == 1_000_000
    assert log[0] == "#1 [1/1] RUN make" and log[1].endswith("no rule")
    monkeypatch.setenv("CODE", "1")
    with pytest.raises(BuildFailed, match="no rule"):
        builders.buildx(WHERE, replace(BUILD, files=files), log.append)
