"""Limits of what a launch may use of its machine: real containers that ask for more."""

import json
import uuid
from collections.abc import Callable, Iterator

import docker
import pytest

from support import archive_of
from torchmatrix.core.settings import Settings
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Exit, Image, LaunchSpec
from torchmatrix.planning.plan import GpuSet

GREEDY = """
import json, os, resource, sys, threading, time
def pids():
    threads = 0
    try:
        while True:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            threads += 1
    except RuntimeError:
        print(json.dumps({"threads": threads}), flush=True)
        os._exit(3)
def grow():
    kept = []
    while True:
        kept.append(bytearray(10_000_000))
def child():
    if os.fork() == 0:
        grow()
    os.wait()
    sys.exit(1)
def tell():
    print(json.dumps({"core": resource.getrlimit(resource.RLIMIT_CORE), "oom": int(open("/proc/self/oom_score_adj").read())}))
{"pids": pids, "grow": grow, "child": child, "tell": tell}[sys.argv[1]]()
"""
"""A workload that does what its first flag says."""


@pytest.fixture(scope="module")
def greedy(client: docker.DockerClient, small: str) -> Iterator[Image]:
    """Build an image whose workload is GREEDY."""
    tag = f"torchmatrix-test/greedy:{uuid.uuid4().hex[:8]}"
    context = archive_of({"Dockerfile": f"FROM {small}\nCOPY bench.py /opt/workload/bench.py\n", "bench.py": GREEDY})
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True)
    yield Image(reference=tag, environment=uuid.uuid4().hex[:12])
    client.images.remove(tag, force=True)


def ended(client: docker.DockerClient, image: Image, what: str) -> tuple[dict[str, object], list[str], Exit]:
    """Return how a launch of the greedy workload was started, what it said, and how it ended."""
    spec = LaunchSpec(arguments=(what,), gpus=GpuSet(indices=(0,), vendor="cpu"), cache="", owner="test-greedy")
    with DockerEngine(client).start(image, spec) as execution:
        printed = [line for stream, line in execution.lines() if stream == "out"]
        return dict(execution.started), printed, execution.wait()


def test_a_container_dies_before_the_machines_services_and_writes_no_core_dumps(
    client: docker.DockerClient, greedy: Image, site: Callable[..., Settings]
) -> None:
    site(TORCHMATRIX_MEMORY_SHARE=0.5, TORCHMATRIX_PROCESSES=700)
    started, printed, end = ended(client, greedy, "tell")
    assert end == Exit(returncode=0, oom_killed=False)
    assert json.loads(printed[0]) == {"core": [0, 0], "oom": 1000}
    total = client.info()["MemTotal"]
    assert started == {
        "memory_bytes": total // 2,
        "processes": 700,
        "core_bytes": 0,
        "oom_score_adj": 1000,
        "compile_cache": {"state": "none", "sha256": None, "note": None},
        "isolation": {"network": "none", "note": None},
    }


@pytest.mark.parametrize("what", ["grow", "child"])
def test_a_container_that_outgrows_its_share_of_the_memory_is_out_of_memory(
    client: docker.DockerClient, greedy: Image, site: Callable[..., Settings], what: str
) -> None:
    site(TORCHMATRIX_MEMORY_SHARE=0.01)
    _, _, end = ended(client, greedy, what)
    assert end.oom_killed and end.returncode != 0


def test_a_container_can_t_have_more_processes_than_its_limit(
    client: docker.DockerClient, greedy: Image, site: Callable[..., Settings]
) -> None:
    site(TORCHMATRIX_PROCESSES=64)
    _, printed, end = ended(client, greedy, "pids")
    assert 32 < json.loads(printed[0])["threads"] < 64 and end == Exit(returncode=3, oom_killed=False)
