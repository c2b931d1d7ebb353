"""Planted texts don't come out: credentials and absolute paths never, names of people and machines not with --redact."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.secrets import is_secret_name, without_secrets
from torchmatrix.facts.reveals import fields_of
from torchmatrix.facts.store import Results
from torchmatrix.reporting import redaction, report
from torchmatrix.reporting.redaction import Pseudonyms, Redaction, identities

UUID = "GPU-3f9a1c2e-77aa-4b1c-9d2e-0a1b2c3d4e5f"
TOKEN = "S3cr3tT0kenXyz987"


def cleaner(enabled: bool = True, **roots: str) -> Redaction:
    places = {"/srv/lab/results": "results", "/srv/lab/torchmatrix": "."}
    return Redaction(enabled=enabled, roots=places | roots, names=Pseudonyms())


def learnt(*events: dict[str, Any]) -> Redaction:
    """Return a redaction that knows the names in these lines."""
    redaction = cleaner()
    for event in events:
        redaction.learn_line(event)
    return redaction


def shown(redaction: Redaction, event: dict[str, Any]) -> dict[str, Any]:
    """Return a line as it is published."""
    line = redaction.line(event)
    assert line
    return line


@pytest.mark.parametrize(
    "uuid", [UUID, "GPU-5eed000000000000", "PCI-0000:05:00.0", "PCI-001f:e5:1f.7-3", "renderD128", "KFD-12"]
)
def test_readings_stay_with_their_gpu(uuid: str) -> None:
    header = {"event": "run", "host": {"gpus": [{"uuid": "GPU-5eed000000000001"}, {"uuid": uuid}]}}
    redaction = learnt(header)
    readings = shown(redaction, {"event": "telemetry", "readings": [{"device": uuid, "error": f"{uuid} is lost"}]})["readings"]
    pseudonym = shown(redaction, header)["host"]["gpus"][1]["uuid"]
    assert readings == [{"device": pseudonym, "error": f"{pseudonym} is lost"}] and uuid not in pseudonym


@pytest.mark.parametrize(
    "text",
    [
        f"git+https://{TOKEN}@git.example/x.git",
        f"https://user:{TOKEN}@pypi.example/simple",
        f"https://user:p@{TOKEN}@pypi.example/simple",
        f"https://bucket.example/x?X-Amz-Signature={TOKEN}&b=1",
        f"https://x.example/?token={TOKEN}",
        f"https://x.example/?q={TOKEN * 2}",
        f"HF_TOKEN={TOKEN}",
        f"export AWS_SECRET_ACCESS_KEY='{TOKEN} with spaces'",
        f'docker run -e "WANDB_API_KEY={TOKEN}" image',
        f"#7 ENV NPM_TOKEN {TOKEN}",
        f"pip install --password {TOKEN} x",
        f"--auth-token={TOKEN}",
        f'{{"password": "{TOKEN}"}}',
        f"password: {TOKEN}",
        f"Authorization: Bearer {TOKEN}",
        f"authorization: basic {TOKEN}",
        f"sent bearer {TOKEN}",
        "pushed with ghp_0123456789abcdefghijABCDEFGHIJ",
        "key eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        f"-----BEGIN RSA PRIVATE KEY-----\n{TOKEN}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{TOKEN}",
    ],
)
def test_credentials_go_always(text: str) -> None:
    for enabled in (False, True):
        shown = cleaner(enabled).text(text)
        assert "…" in shown or "://" in shown
        assert not any(word in shown for word in (TOKEN, "ghp_0123", "eyJhbGci"))


@pytest.mark.parametrize(
    "text",
    [
        "TOKENIZERS_PARALLELISM=false", "RuntimeError: unexpected key(s) in state_dict", "KeyError: 'x'", "key = 3",
        "torch==2.5.1",
        "python@sha256:" + "0" * 64, "100 images/s, 3 GB/s and/or 1/2", "https://download.pytorch.org/whl/cpu?x=1", "a ~ b … c",
        "</script> <br/> <b>x</b>", "max_tokens=128", "nvidia-curand-cu12==10.3.7.77", "CUDNN_VERSION=9.5.1.17", "at 12:34:56",
        "std::vector<int>", "x[::2]", "ratio 3:2", "python:3.11-slim-bookworm", "--master_addr 127.0.0.1", "container image",
        "docker run -v torchmatrix-cache-1:/cache -e A=1 --tmpfs /tmp:rw python3 /opt/workload/bench.py",
        "/dev/kfd /dev/dri/renderD128", "",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert cleaner(True).text(text) == text and cleaner(False).text(text) == text


@pytest.mark.parametrize(
    ("text", "shown", "hidden"),
    [
        ("/srv/lab/results/h/r/x.log", "results/h/r/x.log", "results/h/r/x.log"),
        ("python /srv/lab/torchmatrix/images/a.py", "python ./images/a.py", "python ./images/a.py"),
        ("/srv/lab/torchmatrix", ".", "."),
        ("/home/alice/src/bench.py", "~/src/bench.py", "~/…/bench.py"),
        ("-I/home/alice/include", "-I~/include", "-I~/include"),
        ("PATH=/home/alice/bin:/data/alice/bin", "PATH=~/bin:…/bin", "PATH=~/bin:…/bin"),
        ("/root/.cache/torchmatrix/stacks/a/bin/python", "~/.cache/torchmatrix/stacks/a/bin/python",
         "~/.cache/torchmatrix/stacks/a/bin/python"),
        ("/Users/bob/x y", "~/x y", "~/x y"),
        ("/nfs/export/home/carol/runs/a/b", "~/runs/a/b", "~/…/b"),
        ("File \"/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py\", line 3",
         "File \"…/lib/python3.11/site-packages/torch/nn/functional.py\", line 3",
         "File \"…/lib/python3.11/site-packages/torch/nn/functional.py\", line 3"),
        ("file:///data/project-x/w.whl", "…/w.whl", "…/w.whl"),
        ("(see /mnt/project-x/notes.txt)", "(see …/notes.txt)", "(see …/notes.txt)"),
        ("/scratch", "…/scratch", "…/scratch"),
        ("ssh://box.example/home/alice/x", "ssh://box.example/~/x", "ssh://mirror-1/…"),
    ],
)  # fmt: skip
def test_no_path_is_absolute(text: str, shown: str, hidden: str) -> None:
    assert (cleaner(False).text(text), cleaner(True).text(text)) == (shown, hidden)


HEADER = {
    "event": "run",
    "host": {
        "name": "gpubox7.corp.acme.com", "kernel": "6.1", "notes": [],
        "gpus": [{"name": "NVIDIA H200", "uuid": UUID, "vbios": "96.00.74.00.01", "serial": "1654922001234",
                  "pci_bus": "00000000:3B:00.0", "memory_bytes": 1}],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ping gpubox7 failed", "ping host-1 failed"),
        ("ping GPUBOX7.corp.acme.com failed", "ping host-1 failed"),
        ("gpubox7_results and gpubox7.log", "host-1_results and host-1.log"),
        (f"device {UUID} fell off", "device GPU-1 fell off"),
        (f"device {UUID[4:]} fell off", "device GPU-1 fell off"),
        ("--gpus '\"device=" + UUID + "\"'", "--gpus '\"device=GPU-1\"'"),
        ("MIG-9a1c2e3f-77aa-4b1c-9d2e-0a1b2c3d4e5f", "GPU-1"),
        ("PCI-0000:05:00.0 and PCI-0000:05:00.0-1, PCI-0000:05:00.0 again", "GPU-1 and GPU-2, GPU-1 again"),
        ("NVRM: Xid (PCI:0000:3b:00): 79", "NVRM: Xid (PCI:PCI-1): 79"),
        ("at 0000:3b:00.0 and 00000000:3B:00.0", "at PCI-1 and PCI-1"),
        ("serial 1654922001234, VBIOS 96.00.74.00.01", "serial serial-1, VBIOS VBIOS-1"),
        ("from 10.1.2.3 and fe80::1c2e:3f4a:1 to 10.1.2.3:8080", "from IP-1 and IP-2 to IP-1:8080"),
        ("ether 3c:ec:ef:12:34:56", "ether MAC-1"),
        ("node 0c42:a103:0065:4bf2", "node MAC-1"),
        ("mail alice.smith@acme.com now", "mail … now"),
        ("https://nexus.acme.com:8443/team-x/simple torch", "https://mirror-1:8443/… torch"),
        ("https://download.pytorch.org/whl/cpu", "https://download.pytorch.org/whl/cpu"),
        ("process 4711 (python3, user alice)", "process 4711 (a program, user user-1)"),
        ("container 9f2c1ab34de5 exited", "container container-1 exited"),
        ("resolve nas-2.internal", "resolve host-1"),
    ],
)  # fmt: skip
def test_names_and_addresses_become_pseudonyms(text: str, shown: str) -> None:
    assert learnt(HEADER).text(text) == shown


_ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("--data /srv/lab9//hidden/set", "hidden"), ("/opt//hidden/y", "hidden"), ("/home/jo//hidden/a/b", "hidden"),
        ("-isystem/srv/hidden/include", "srv"), ("-B/srv/hidden/bin", "srv"), ("</srv/hidden/a>", "srv"),
        (r"b'failed\n/srv/hidden/x'", "srv"), ("\x1b[31m/srv/hidden/x", "srv"),
        ("no way to 10.11.12.13.", "10.11"), ("10.11.12.14-10.11.12.20", "10.11"), ("node-10.11.12.13 a_10.11.12.14", "10.11"),
        ("[0]eth0:fe80::aaaa:bbbb:cccc:1%eth0<0>", "fe80"), ("3c:ec:ef:12:34:56: up", "3c:ec"),
        (f"libpod-{_ID}.scope", _ID), (f"cri-containerd-{_ID}.scope", _ID), (f"/kubepods/pod1/{_ID}", _ID),
        (f"container_id={_ID[:12]}", _ID[:12]), ("mailto:jo@lab9.example", "lab9"),
        ("docker -H ssh://carol9@box9.example ps; by carol9", "carol9"),
        ("ssh -p 22 eve99@box10.lab9.example; eve99, box10", "99"),
        ("scp x eve99@box10.lab9.example:y; box10", "box10"),
    ],
)  # fmt: skip
def test_paths_and_addresses_in_less_usual_places_go(text: str, hidden: str) -> None:
    redaction = cleaner()
    redaction.learn({"text": text})
    assert hidden not in redaction.text(text)


@pytest.mark.parametrize(
    "text", ["libnccl 2.21.5.1-1+cuda12", "torch-2.1.0.1", "</div></p>", f"pull x@sha256:{_ID}", "https://pypi.org//simple//x"]
)
def test_versions_tags_and_digests_stay(text: str) -> None:
    assert cleaner().text(text) == text


def test_a_private_registry_of_a_stack_that_was_not_launched_is_hidden() -> None:
    redaction = learnt({"event": "run", "matrix": '[[stack]]\nimage = "registry.lab9.example:5000/team/x:1"\n'})
    skipped = {"event": "skip", "cell": "a/b/c", "reason": "registry.lab9.example doesn't answer"}
    assert "lab9" not in json.dumps(shown(redaction, skipped)) + redaction.text("registry.lab9.example")


def test_a_name_that_one_run_tells_is_hidden_in_the_texts_of_all(tmp_path: Path) -> None:
    runs = []
    for number, text in enumerate(("beside zbox2, by zjane", "beside zbox1, in /home/zjane/x")):
        told = [{"event": "remarks", "texts": [text]}]
        write_run(
            tmp_path / "results",
            [{"rate": 100.0, "told": told}],
            folder=f"zbox{number + 1}",
            run=f"2026010{number + 1}T000000Z",
        )
    results = Results(tmp_path / "results")
    runs = results.runs()
    with redaction.redacting(results, print) as together:
        copies = redaction.staged_together(runs, together, tmp_path / "all")
    with redaction.redacting(results, print) as later:  # which learns no more than the names that are kept
        alone = redaction.staged(runs[0], later, tmp_path / "one")
    for copy in (*copies, alone):
        texts = "".join(path.read_text() for path in copy.path.rglob("*.jsonl"))
        assert not any(name in texts for name in ("zbox1", "zbox2", "zjane")), texts


def test_fields_are_replaced_and_products_are_not() -> None:
    host = shown(learnt(HEADER), HEADER)["host"]
    gpu = host["gpus"][0]
    assert host["name"] == "host-1" and gpu["name"] == "NVIDIA H200"
    assert (gpu["uuid"], gpu["vbios"], gpu["serial"], gpu["pci_bus"]) == ("GPU-1", "VBIOS-1", "serial-1", "PCI-1")


def test_a_serial_number_that_is_a_json_number_gets_a_pseudonym_too() -> None:
    line = {"event": "run", "host": {"gpus": [{"serial": 1654922001234, "index": 3}]}}
    assert shown(learnt(line), line)["host"]["gpus"] == [{"serial": "serial-1", "index": 3}]


def test_without_redact_hosts_and_devices_stay() -> None:
    plain = cleaner(False)
    plain.learn_line(HEADER)
    assert plain.line(HEADER) == HEADER and plain.text("gpubox7 10.1.2.3") == "gpubox7 10.1.2.3"


def test_a_host_that_is_called_like_a_field_value_changes_no_meaning() -> None:
    header = {"event": "launch", "host": {"name": "train"}, "workload": {"mode": "train", "unit": "images"}}
    line = shown(learnt(header), header)
    assert line["host"]["name"] == "host-1" and line["workload"] == {"mode": "train", "unit": "images"}
    short = {"event": "run", "host": {"name": "vm"}}
    assert shown(learnt(short), short)["host"]["name"] == "host-1" and learnt(short).text("the vm.max_map") == "the vm.max_map"


def test_a_private_registry_named_by_an_image_is_hidden_in_all_texts() -> None:
    redaction = learnt({"event": "launch", "stack": {"image": "registry.acme.com:5000/hub/pytorch:24.10", "base": None}})
    assert (
        redaction.text("pull registry.acme.com:5000/hub/x: denied by registry.acme.com")
        == "pull mirror-1:5000/hub/x: denied by mirror-1"
    )
    public = learnt({"event": "launch", "stack": {"image": "nvcr.io/nvidia/pytorch:24.10-py3"}})
    assert public.text("nvcr.io/nvidia") == "nvcr.io/nvidia"


@pytest.mark.parametrize(
    "value",
    [
        {"argv": ["train.py", "--token", TOKEN]},
        {"argv": ["docker", "login", "-u", "me", "-p", TOKEN, "host"]},
        {"password": [TOKEN]},
        {"credentials": {"user": "x", "it": TOKEN}},
        {"env": [{"name": "HF_TOKEN", "value": TOKEN}]},
        {"env": [["HF_TOKEN", TOKEN]]},
        {"headers": [["authorization", TOKEN]]},
        {"hf_" + TOKEN: 1},
        {"lines": ["-----BEGIN PRIVATE KEY-----", TOKEN, "-----END PRIVATE KEY-----"]},
    ],
)
def test_a_credential_in_a_separate_member_goes(value: dict[str, Any]) -> None:
    assert TOKEN not in repr(cleaner(False).value(value))


def test_lists_without_credentials_stay() -> None:
    value = {"argv": ["bench.py", "--tokens", "4096"], "packages": ["keyring==25.5", "secretstorage==3.3.3"], "pass": [1, 2]}
    assert cleaner(False).value(value) == value


def test_fields_with_telling_names_lose_their_values() -> None:
    value = {
        "variables": {"MY_API_KEY": TOKEN, "NCCL_DEBUG": "INFO"},
        "password": TOKEN,
        "tokens": 3,
        "key": "ca27",
        "token": None,
    }
    shown = cleaner(False).value(value)
    assert shown == {
        "variables": {"MY_API_KEY": "…", "NCCL_DEBUG": "INFO"}, "password": "…", "tokens": 3, "key": "ca27", "token": None,
    }  # fmt: skip
    assert is_secret_name("HF_TOKEN") and is_secret_name("apiKey".lower()) and not is_secret_name("TOKENIZERS_PARALLELISM")


WRONG = (1e-300, True, None, "abc", 3, [1], [["a"]], ["a", None], {"a": "b"}, [{"a": "b"}])


@pytest.mark.parametrize("value", WRONG)
def test_a_line_whose_fields_have_other_types_than_declared_is_redacted_all_the_same(value: Any) -> None:
    for kind in ("exit", "launch", "failure", "setup", "telemetry", "run", "no-such-line"):
        names = [*(fields_of(kind) or {}), "tail", "message", "own", "readings", "processes"]
        for event in ({"event": kind, name: value} for name in names):
            for enabled, with_messages in ((True, True), (True, False), (False, True), (False, False)):
                cleaning = Redaction(enabled=enabled, roots={}, names=Pseudonyms(), with_messages=with_messages)
                cleaning.learn_line(event)
                cleaning.line(event)


def test_pseudonyms_stay_the_same_from_one_publication_to_the_next(tmp_path: Path) -> None:
    first = identities.load(tmp_path)
    assert [first.of("host", "b"), first.of("host", "a"), first.of("user", "a")] == ["host-1", "host-2", "user-1"]
    first.save(tmp_path)
    again = identities.load(tmp_path)
    assert again.of("host", "A") == "host-2" and again.of("host", "c") == "host-3" and again.secret == first.secret
    assert (tmp_path / identities.FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"secret": "x", "numbers": [1]}'])
def test_a_damaged_list_of_pseudonyms_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / identities.FILE).write_text(text)
    with pytest.raises(BadInput, match="damaged"):
        identities.load(tmp_path)


def test_a_page_without_pseudonyms_doesnt_need_their_file(tmp_path: Path) -> None:
    """Who publishes may keep it to themselves; who only reads the results needs no right to it."""
    run = write_run(tmp_path / "results", [{}])
    (tmp_path / "results" / identities.FILE).write_text("not for you")
    assert redaction.cleaned(run, tmp_path / "copy").launches()


def test_pseudonyms_that_cant_be_kept_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineUnusable, match="can't write"):
        Pseudonyms().save(tmp_path / "missing")


@pytest.mark.parametrize(
    "characters",
    [
        "a",
        "-",
        "/a",
        "a.",
        "0",
        "A=",
        "a:",
        "site-packages/",
        "../",
        "lib/python3/",
        "/home",
        "?a=",
        "http://a?",
        "ssh://a/b://",
        "0:",
        "1.",
        "token='",
        "'token', ",
        "eyJ",
        "eyJa.",
        "sk-",
        "-----BEGIN ",
        "Cookie: ",
        "docker login ",
        "\n",
        '\\"',
        "|\n ",
        "A@",
    ],
)
def test_long_texts_take_no_long_time(characters: str) -> None:
    """Quadratic patterns would need minutes here, and the duration of the tests would show it."""
    text = characters * (100_000 // len(characters))
    assert cleaner().text(text) is not None and without_secrets(text + "\x01") is not None


def test_many_names_take_no_longer_than_few() -> None:
    hidden = learnt({"event": "exit", "message": " ".join(f"/home/user{number}" for number in range(10_000))})
    assert hidden.text("user77 and user9999 " * 5_000).startswith("user-1 and user-2 user-1 and")


def test_addresses_nested_in_addresses_are_redacted_in_finite_time() -> None:
    shown = cleaner().text("http://a.acme.example/?" * 3_000 + "/home/alice")
    assert "alice" not in shown and "acme" not in shown


def test_pseudonyms_that_another_command_gave_meanwhile_are_never_given_twice(tmp_path: Path) -> None:
    identities.load(tmp_path).save(tmp_path)
    first, second = identities.load(tmp_path), identities.load(tmp_path)
    assert first.of("host", "a") == second.of("host", "b") == "host-1"
    first.save(tmp_path)
    with pytest.raises(EngineUnusable, match="another command"):
        second.save(tmp_path)
    again = identities.load(tmp_path)
    assert (again.of("host", "a"), again.of("host", "b")) == ("host-1", "host-2")
    again.save(tmp_path)


PLANTED = {
    "host": "gpubox7", "domain": "corp-acme", "user": "alicesmith", "uuid": UUID, "bare-uuid": UUID[4:],
    "serial": "1654922001234", "vbios": "96.00.74.00.01", "pci": "3B:00.0", "token": TOKEN, "registry": "registry.acme",
    "mirror": "nexus.acme",
    "address": "10.20.30.40", "mac": "3c:ec:ef:12:34:56", "project": "secret-project", "other-user": "bobjones",
    "container": "9f2c1ab34de5", "mount": "/mnt/tank", "machine": "5a0c66e0f1d2b3a4",
    "node": "sisterbox8", "node's machine": "7b1d55e0aa0c1122",
}  # fmt: skip
"""Words that must not be in anything that is published with --redact."""


def planted_run(root: Path) -> Any:
    """Write a run that has every planted word in every place that takes a text."""
    everything = (
        f"gpubox7.corp-acme.example /home/alicesmith/secret-project/a/x.py /mnt/tank/secret-project/b/y.py {UUID} {UUID[4:]} "
        f"1654922001234 96.00.74.00.01 00000000:3B:00.0 git+https://{TOKEN}@git.nexus.acme.example/secret-project "
        f"HF_TOKEN={TOKEN} registry.acme.example:5000/hub/x https://nexus.acme.example/simple 10.20.30.40 "
        "3c:ec:ef:12:34:56 alicesmith@gpubox7 process 12 (python, user bobjones) container 9f2c1ab34de5 /data/alicesmith "
        "5a0c66e0f1d2b3a4"
    )
    gpu = HEADER["host"]["gpus"][0] | {"index": 0}  # type: ignore[index]
    host = {
        "name": "gpubox7.corp-acme.example",
        "cpu": "CPU",
        "kernel": "6.1",
        "gpus": [gpu],
        "cores": [0],
        "notes": [everything],
    }
    stack = {"name": "alicesmith-stack", "torch": "2.5.1", "image": "registry.acme.example:5000/hub/pytorch:24.10"}
    image = {
        "reference": everything,
        "digests": ["registry.acme.example:5000/hub/x@sha256:" + "0" * 64],
        "arguments": {"URL": everything},
    }
    gpus = {"indices": [0], "label": "gpu0", "vendor": "nvidia", "gpus": [gpu], "threads": 1}
    engine = {"engine": "docker", "Name": "gpubox7", "ServerVersion": "27", "DockerRootDir": "/mnt/tank/docker"}
    launch = {"host": host, "image": image, "gpus": gpus, "engine": engine, "command": everything, "error": everything}
    reading = {
        "device": UUID,
        "temperature_celsius": 50,
        "foreign": ["process 12 (secret-project, user bobjones)"],
        "error": everything,
    }
    node = {"event": "node", "name": "sisterbox8", "number": 2, "machine": "7b1d55e0aa0c1122", "host": host, "gpus": gpus}
    scheduler = {"nodes": [{"host name": "sisterbox8", "gres": "gpu:1"}], "placed": {"alicesmith-stack/w/gpu0": ["sisterbox8"]}}
    readings = [(float(t), reading) for t in (100, 110, 119)]
    run = write_run(
        root,
        [
            {**launch, "rate": 100.0, "stack": "alicesmith-stack", "told": [node], "readings": readings},
            {**launch, "stack": "alicesmith-stack", "outcome": "crashed"},
            {**launch, "stack": "b", "outcome": "build-failed"},
        ],
        skips=[("gpubox7-stack/w/gpu0", everything)],
        host=host, command=everything, matrix=f'# {everything}\n[[stack]]\npython = "/mnt/tank/secret-project/python"\n',
        watch_notes=[everything], machine="5a0c66e0f1d2b3a4", scheduler=scheduler,
    )  # fmt: skip
    host_folder = run.path.parent.rename(root / "gpubox7.corp-acme.example")
    folder = type(run)(host_folder / run.id)
    for path in folder.path.rglob("round*.jsonl"):
        path.with_suffix(".log").write_text(f"{everything}\n" * 3)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if line["event"] == "launch":
                line["stack"] = stack
            if line["event"] == "environment":
                line |= {"torch_config": everything, "packages": [f"x @ {everything}"], "variables": {"LD_PRELOAD": everything}}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder.path / "locks").mkdir()
    (folder.path / "locks" / "alicesmith-stack.lock").write_text(f'index = "{everything}"\n')
    return folder


def leaks(content: bytes, words: dict[str, str] = PLANTED) -> list[str]:
    low = content.lower()
    return [name for name, word in words.items() if word.lower().encode() in low]


def test_no_planted_word_is_in_a_redacted_copy_nor_in_what_is_made_of_it(tmp_path: Path) -> None:
    run = planted_run(tmp_path / "results")
    cleaned = redaction.for_results(Results(tmp_path / "results"), True, Pseudonyms())
    copy = redaction.staged(run, cleaned, tmp_path / "staged", logs=True)
    paths = [path for path in (tmp_path / "staged").rglob("*") if path.is_file()]
    assert len(paths) == len([path for path in run.path.rglob("*") if path.is_file()])
    for path in paths:
        assert not leaks(path.read_bytes()), path
        assert not leaks(path.relative_to(tmp_path / "staged").as_posix().encode())
    page = report.render(report.view_of(copy))
    assert not leaks(page.encode()) and "NVIDIA H200" in page and "host-1" in page and "100.0" in page


def test_without_redact_credentials_and_absolute_paths_are_gone_all_the_same(tmp_path: Path) -> None:
    run = planted_run(tmp_path / "results")
    cleaned = redaction.for_results(Results(tmp_path / "results"), False, Pseudonyms())
    copy = redaction.staged(run, cleaned, tmp_path / "staged", logs=True)
    content = b"".join(path.read_bytes() for path in copy.path.rglob("*") if path.is_file())
    assert set(leaks(content)) == set(PLANTED) - {"token", "mount"}
    assert b"/home/" not in content and b"gpubox7" in content


def test_numbers_and_what_follows_from_them_are_the_same_in_a_copy(tmp_path: Path) -> None:
    run = planted_run(tmp_path / "results")
    copy = redaction.staged(run, redaction.for_results(Results(tmp_path / "results"), True, Pseudonyms()), tmp_path / "staged")
    ours, theirs = (report.view_of(folder).summary.launches for folder in (run, copy))
    for column in ("throughput", "temperature_last", "peak_bytes", "batch", "seconds"):
        assert [row.value(column) for row in ours] == pytest.approx([row.value(column) for row in theirs], nan_ok=True)
    assert [row.outcome for row in ours] == [row.outcome for row in theirs]
    assert len({row.cell for row in theirs}) == len({row.cell for row in ours})


def test_facts_without_anything_to_hide_are_copied_byte_for_byte(tmp_path: Path) -> None:
    run = write_run(tmp_path / "results", [{}, {"devices": (0, 1)}])
    copy = redaction.staged(run, redaction.for_results(Results(tmp_path / "results"), False, Pseudonyms()), tmp_path / "staged")
    for path in run.path.rglob("*.jsonl"):
        assert (copy.path / path.relative_to(run.path)).read_bytes() == path.read_bytes()


def test_the_pseudonym_of_a_machine_is_an_identity_that_no_other_site_gives() -> None:
    line = {"event": "run", "machine": "5a0c66e0f1d2b3a4"}
    here, there = (Redaction(enabled=True, roots={}, names=Pseudonyms(secret=word)) for word in ("here", "there"))
    for redaction_ in (here, there):
        redaction_.learn_line(line)
    assert shown(here, line) == shown(here, line) != shown(there, line) != line
    assert len(shown(here, line)["machine"]) == 16
    assert here.text("machine 5a0c66e0f1d2b3a4") == f"machine {shown(here, line)['machine']}"


@pytest.mark.parametrize("stack", ["a+", "a-", "a.", "a_", "b-+", "A", "a`", "a%", "a~", "{x}", "home", "Users"])
@pytest.mark.parametrize("enabled", [False, True])
def test_a_copy_has_every_cell_whatever_its_stack_is_called(tmp_path: Path, stack: str, enabled: bool) -> None:
    rates = {"resnet50-train-fp32-b4-224px": 100.0, "m": 50.0}
    launches = [{"stack": stack, "workload": name, "rate": rate} for name, rate in rates.items()]
    run = write_run(tmp_path / "results", launches)
    names = redaction.for_results(Results(tmp_path / "results"), enabled, Pseudonyms())
    views = [report.view_of(folder) for folder in (run, redaction.staged(run, names, tmp_path / "staged"))]
    here, there = ([(row.cell, row.throughput) for row in view.summary.launches] for view in views)
    assert here == there and len(here) == 2


def test_two_names_that_become_one_are_refused_and_nothing_is_merged(tmp_path: Path) -> None:
    stacks = [f"hf_{letter * 34}" for letter in "ab"]
    run = write_run(tmp_path / "results", [{"stack": stack, "rate": 100.0} for stack in stacks])
    names = redaction.for_results(Results(tmp_path / "results"), False, Pseudonyms())
    with pytest.raises(BadInput, match="would be one file"):
        redaction.staged(run, names, tmp_path / "staged")
