"""The daemon that is used: the one that Docker's own client uses, by SDK and by buildx."""

import hashlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_daemon import daemon, nothing, what_is_here
from support.sites import Authority
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.engines import builders
from torchmatrix.engines.choose import choose
from torchmatrix.engines.docker import DockerEngine, connect
from torchmatrix.engines.docker_images import DockerImages
from torchmatrix.engines.endpoints import Endpoint, default_socket, endpoint
from torchmatrix.machine.host import detect

WORDS = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "XDG_RUNTIME_DIR")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make an empty configuration of Docker's client; the command starts in another folder, and nobody said where Docker is."""
    for name in WORDS:
        monkeypatch.delenv(name, raising=False)
    folder, elsewhere = tmp_path / "docker", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.chdir(elsewhere)
    yield folder


def give(config: Path, name: str, content: object) -> str:
    """Write a context's file as `docker context create` does; return the folder's name."""
    folder = hashlib.sha256(name.encode()).hexdigest()
    path = config / "contexts/meta" / folder
    path.mkdir(parents=True)
    endpoints = {"Name": name, "Metadata": {}, "Endpoints": {"docker": content}}
    (path / "meta.json").write_text(content if isinstance(content, str) else json.dumps(endpoints))
    return folder


def use(config: Path, name: str) -> None:
    (config / "config.json").write_text(json.dumps({"auths": {}, "currentContext": name}))


DESKTOP, FAR = "unix:///home/me/.docker/desktop/docker.sock", "ssh://me@far"


@pytest.mark.parametrize(
    ("variables", "current", "expected"),
    [
        ({}, "desktop-linux", ("desktop-linux", DESKTOP)),
        ({"DOCKER_CONTEXT": "far"}, "desktop-linux", ("far", FAR)),
        ({"DOCKER_CONTEXT": "far"}, None, ("far", FAR)),  # there is no config.json: SDKs look in the current folder
        ({"DOCKER_HOST": "tcp://h:1", "DOCKER_CONTEXT": "far"}, "desktop-linux", ("default", "tcp://h:1")),
        ({"DOCKER_HOST": "", "DOCKER_CONTEXT": ""}, "far", ("far", FAR)),  # empty is unset
        ({"DOCKER_CONTEXT": "default"}, "far", ("default", "unix:///var/run/docker.sock")),
        ({}, "default", ("default", "unix:///var/run/docker.sock")),
        ({}, "", ("default", "unix:///var/run/docker.sock")),
        ({}, None, ("default", "unix:///var/run/docker.sock")),
    ],
)
def test_a_context_is_followed_as_dockers_own_client_follows_it(
    config: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], current: str | None, expected: tuple[str, str]
) -> None:
    give(config, "desktop-linux", {"Host": DESKTOP, "SkipTLSVerify": False})
    give(config, "far", {"Host": FAR})
    if current is not None:
        use(config, current)
    for name, word in variables.items():
        monkeypatch.setenv(name, word)
    assert (endpoint().context, endpoint().host) == expected


def test_a_config_that_can_t_be_read_is_an_empty_one(config: Path) -> None:
    for text in ("", "{", "[]", '"x"'):
        (config / "config.json").write_text(text)
        assert endpoint().context == "default"


ODD = (
    "[]", "7", '{"auths": "x"}', '{"auths": {"r": 5}}', '{"auths": {"r": {"auth": 5}}}', '{"auths": {"r": {"auth": "%%%"}}}',
    '{"auths": {"r": {"auth": "\\u00e9"}}}', '{"proxies": [1]}', '{"proxies": {"default": "x"}}', '{"proxies": null}',
    '{"HttpHeaders": 5}', '{"r": {"auth": 5}}', '{"credHelpers": 5}', '{"credsStore": []}', "[" * 100_000 + "\n",
)  # fmt: skip
"""Configurations of Docker's client that are JSON, but not as its library takes it."""


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:30])
def test_a_config_of_other_types_is_named_and_without_docker_the_machine_is_used(config: Path, text: str) -> None:
    """The daemon is the one of this machine, if it runs one: some of these are no obstacle then."""
    (config / "config.json").write_text(text)
    chosen = choose("auto", "test")
    assert chosen.builder is not chosen.local or "config.json" in chosen.why or "Docker" in chosen.why, chosen.why
    for name in ("auto", "docker"):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(EngineUnusable) as raised:
            patch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
            choose(name, "test")
        assert "config.json" in str(raised.value) or "does not answer" in str(raised.value)


@pytest.mark.parametrize("variables", [{}, {"DOCKER_HOST": "unix:///x"}])
def test_a_config_that_is_a_pipe_is_refused_and_never_waited_for(
    config: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    os.mkfifo(config / "config.json")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    signal.alarm(30)  # ends the test where it waits
    with pytest.raises(EngineUnusable, match=r"config\.json is a pipe"):
        endpoint()
    signal.alarm(0)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "[" * 100_000, '{"Name": "x"}', '{"Endpoints": {"kubernetes": {}}}', '{"Endpoints": {"docker": 7}}'],
)
def test_a_context_that_is_not_there_or_says_nothing_is_never_taken_for_the_default_one(
    config: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    give(config, "odd", content)
    undecodable = {"\udcff": 'Docker has no context "'}
    for name, reason in {
        "gone": 'Docker has no context "gone"',
        "odd": 'context "odd" says no endpoint',
        **undecodable,
    }.items():
        monkeypatch.setenv("DOCKER_CONTEXT", name)
        with pytest.raises(EngineUnusable, match=reason):
            choose("auto", "test")
        monkeypatch.delenv("DOCKER_CONTEXT")
        use(config, name)
        with pytest.raises(EngineUnusable, match=reason):
            choose("docker", "test")
        chosen = choose("auto", "test")
        assert chosen.builder is chosen.local and reason.split('"')[0] in chosen.why


def test_a_rootless_daemons_socket_is_used_where_the_machines_can_t_be(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    none, machines = tmp_path / "none.sock", tmp_path / "machine.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_socket(none) == none, "which a message then names"
    (tmp_path / "docker.sock").touch()
    assert default_socket(none) == tmp_path / "docker.sock"
    machines.touch()
    assert default_socket(machines) == machines


def test_a_chosen_daemon_that_doesn_t_answer_is_named_and_one_that_does_is_used(config: Path, tmp_path: Path) -> None:
    give(config, "desktop", {"Host": f"unix://{tmp_path}/d.sock"})
    use(config, "desktop")
    silent = choose("auto", "test")
    assert silent.builder is silent.local
    assert f"Docker does not answer at unix://{tmp_path}/d.sock (context desktop)" in silent.why
    with daemon(tmp_path / "d.sock", what_is_here) as host:
        chosen = choose("auto", "test")
        assert chosen.builder.name == "docker" and chosen.why == f"docker at {host} (context desktop)"
        here = detect()
        assert chosen.builder.machine(here) is here


def test_a_contexts_daemon_elsewhere_is_not_this_machine_though_name_and_kernel_are_the_same(
    config: Path, tmp_path: Path
) -> None:
    with daemon(tmp_path / "tunnel.sock", nothing) as host:
        give(config, "faraway", {"Host": host})
        use(config, "faraway")
        here = detect()
        there = choose("auto", "test").builder.machine(here)
    assert there.name == here.name and there.kernel == here.kernel, "the trap"
    assert there.machine != here.machine and there.machine is not None
    assert len(there.cores) == 3 and "model unknown from here" in there.cpu and socket.gethostname() in there.notes[-1]


def test_the_certificates_of_a_context_are_used(
    config: Path, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they win over what a client is told
        monkeypatch.delenv(name, raising=False)
    with daemon("127.0.0.1", what_is_here, authority.certificate) as host:
        certificates = config / "contexts/tls" / give(config, "checked", {"Host": host, "SkipTLSVerify": False}) / "docker"
        give(config, "clear", {"Host": host})
        use(config, "clear")
        with pytest.raises(EngineUnusable, match="does not answer at tcp://127"):
            connect()
        use(config, "checked")
        certificates.mkdir(parents=True)
        with pytest.raises(EngineUnusable, match="CERTIFICATE_VERIFY_FAILED"):
            connect()
        (certificates / "ca.pem").write_bytes(authority.bundle.read_bytes())
        connect().close()


PROGRAM = """#!/bin/sh
echo "$DOCKER_HOST|$DOCKER_CONTEXT|$*" >> {folder}/said
echo "Status: running"
cat > /dev/null
"""


@pytest.mark.parametrize(
    ("where", "printed", "builder"),
    [
        (Endpoint(host="unix:///run/user/7/docker.sock"), "unix:///run/user/7/docker.sock|", "default"),
        (Endpoint(host="ssh://far", context="far"), "|far", "far"),
    ],
)
def test_buildx_builds_on_the_daemon_that_is_used(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Endpoint, printed: str, builder: str
) -> None:
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert builders.has_buildx(where)
    build = builders.Build(files={"Dockerfile": b"FROM x\n"}, dockerfile="Dockerfile", arguments={}, tag="t", labels={})
    builders.buildx(where, build, lambda line: None)
    inspected, built = (tmp_path / "said").read_text().splitlines()
    assert inspected == f"{printed}|buildx inspect {builder}"
    assert built.startswith(f"{printed}|buildx build --builder {builder} --load ")


@pytest.mark.parametrize("answer", ["null", "[null]", "7", '"text"', "NaN", "<html>502 Bad Gateway</html>", "", "[" * 5_000])
def test_an_answer_that_no_daemon_gives_ends_with_its_path_and_a_hint(config: Path, tmp_path: Path, answer: str) -> None:
    paths = ("/info", "/images/json", "/volumes", "/containers/json", "/images/torchmatrix/x:1/json")
    with daemon(tmp_path / "d.sock", nothing, told=dict.fromkeys(paths, answer)) as host:
        engine = DockerEngine(connect(Endpoint(host=host)))
        for ask, path in (
            (engine.facts, "/info"),
            (engine.version, "/info"),
            (lambda: engine.machine(detect()), "/info"),
            (engine.why_unlimited, "/info"),
            (lambda: engine.leftovers(()), "/images/json"),
            (lambda: engine.remove_orphans("somebody"), "/containers/json"),
            (lambda: DockerImages(connect(Endpoint(host=host))).has("torchmatrix/x:1"), "/images/torchmatrix/x:1/json"),
        ):
            with pytest.raises(EngineUnusable, match=f"its answer to /v[0-9.]+{path} is not what Docker would say") as caught:
                ask()
            assert caught.value.hint


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://nobody@127.0.0.1:1")
    monkeypatch.setattr("torchmatrix.engines.docker.find_spec", lambda name: None)
    with pytest.raises(EngineUnusable, match="needs paramiko, which is not installed") as raised:
        choose("docker", "test")
    assert "docker[ssh]" in raised.value.hint
