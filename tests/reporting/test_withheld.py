"""Nothing that somebody else said is published unasked, and a credential in it not even then: planted in every field."""

import json
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Command
from support.records import nights, write_run
from torchmatrix.core import inputs
from torchmatrix.core.inputs import without_comments
from torchmatrix.core.secrets import without_secrets
from torchmatrix.reporting.redaction import WITHHELD, Pseudonyms, Redaction

RANDOM = random.Random(50)
ALL, HEX = string.ascii_letters + string.digits, "0123456789abcdef"


def drawn(length: int, letters: str = ALL) -> str:
    """Return letters at random, with a digit and a letter among them."""
    return "a7" + "".join(RANDOM.choice(letters) for _ in range(length - 2))


SHAPED = {
    "Cloudflare": f"v1.0-{drawn(24, HEX)}-{drawn(146, HEX)}",
    "Vault": f"s.{drawn(24)}",
    "W&B": drawn(40, HEX),
    "Pulumi": "pul" + f"-{drawn(40, HEX)}",
    "Twilio": "SK" + drawn(32, HEX),
    "Mailgun": "key" + f"-{drawn(32, HEX)}",
    "ngrok": f"2{drawn(26)}_{drawn(20)}",
    "GitHub": "gh" + f"p_{drawn(36)}",
    "Hugging Face": "hf" + f"_{drawn(34)}",
}
CONTEXTS = (
    "passwd {}", "login passwd {} failed", "WANDB_API_KEY {}", "WANDB_API_KEY {} here", "[--token, {}]", "[a, --token, {}, b]",
    "sig={}", "https://x.blob.example/c?sv=1&sig={}", "SharedAccessSignature={}", "SharedAccessSignature sr=x&sig={}&se=1",
    ".dockerconfigjson: {}", 'data: {{".dockerconfigjson": "{}"}}', "u:{}@h:80", "proxy user:{}@proxy.example",
    "private_key_id={}", '"private_key_id": "{}"', "export HF_TOKEN {}", "\npasswd {}\n",
)  # fmt: skip


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("value", ["hunter2", drawn(9), drawn(20), drawn(40, HEX)])
def test_a_value_that_a_word_names_a_secret_goes(context: str, value: str) -> None:
    shown = without_secrets(context.format(value))
    assert value not in shown and "…" in shown


@pytest.mark.parametrize("context", ["{}", "error with {} here", "x={}", "({})", "'{}'"])
@pytest.mark.parametrize("kind", SHAPED)
def test_a_token_of_a_service_goes_wherever_it_stands(kind: str, context: str) -> None:
    assert SHAPED[kind] not in without_secrets(context.format(SHAPED[kind]))


@pytest.mark.parametrize("cut", [6, 10, 20, 30])
@pytest.mark.parametrize("context", ["token={}", "sent {} away", "WANDB_API_KEY={}", "Authorization: Bearer {}"])
@pytest.mark.parametrize("kind", SHAPED)
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\n    "])
def test_both_halves_of_a_token_that_a_line_break_cuts_go(kind: str, context: str, cut: int, line_break: str) -> None:
    halves = SHAPED[kind][:cut], SHAPED[kind][cut:]
    shown = without_secrets(context.format(line_break.join(halves)))
    assert not any(half in shown for half in halves if len(half) > 3)


@pytest.mark.parametrize(
    "text",
    [
        "commit 0123456789abcdef0123456789abcdef01234567", "git+https://github.com/a/b@0123456789abcdef0123456789abcdef01234567",
        'revision = "0123456789abcdef0123456789abcdef01234567"', "python:3.11@sha256:" + "0" * 64, "a:b@sha256:" + "1" * 64,
        "git@github.com:a/b.git", "throughput 1234.5 images/s", "the tokens\nresnet50 train", "12:30 at 10:15", "s.x",
        "s.split()", "key-value pairs", "SKIPPED", "signal.SIG_IGN: 3", "signature(function)", "gpu0+1@2nodes", 
        "HF_TOKEN is not set",         "passwd is wrong", "password\nresnet50", "max_tokens 128",
    ],
)  # fmt: skip
def test_figures_commits_digests_and_ordinary_words_stay(text: str) -> None:
    assert without_secrets(text) == text


SAID = "".join(("said", drawn(8)))
"""What only a workload, a library or a build says."""
SECRET = drawn(24)


MATRIX = f"API_KEY = '{SECRET}' # {SAID}: ask for the pass phrase\n"


def said(kind: str) -> str:
    return f"RuntimeError: {SAID} {kind}: wandb refused token={SECRET} of passwd {SECRET}"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a folder with runs of two machines whose launches failed in several ways, with messages and secrets."""
    told = [{"event": "unseen", "error": said("unseen")}]
    launches: list[dict[str, Any]] = [
        {"rate": 100.0, "told": told, "command": f"python bench.py --token {SECRET}", "stack": {"name": "a", "torch": "2.5.1"}},
        {"rate": 90.0, "stack": {"name": "b", "torch": "2.5.1", "indexes": [{"url": f"https://u:{SECRET}@pypi.example"}]}},
        {"outcome": "crashed", "error": said("crashed"), "stack": "c"},
        {"outcome": "build-failed", "error": said("build"), "stack": "d"},
        {"outcome": "timeout", "error": "ended after the time-out of 5 s", "stack": "e"},
        {"outcome": "oom", "error": said("oom"), "stack": "f"},
        {"outcome": "timeout", "error": said("of an engine"), "stack": "g"},
        {"outcome": "lost", "error": said("of a cluster"), "stack": "h"},
    ]
    for run, host in (("20260101T000000Z", "one"), ("20260102T000000Z", "two")):
        folder = write_run(tmp_path / "results", launches, run=run, folder=host, machine=host, matrix=MATRIX)
        for path in folder.path.rglob("*.jsonl"):
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            for line in lines:
                if line["event"] == "exit" and line.get("returncode"):
                    line["tail"] = [said("tail"), f"token={SECRET[:12]}", SECRET[12:]]
                if line.get("reason") == "timeout" and SAID not in line.get("message", SAID):
                    line["own"] = True
                if line["event"] == "reference":
                    line["error"] = said("reference")
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            path.with_suffix(".log").write_text(said("log"), encoding="utf-8")
    return tmp_path


WAYS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "report": lambda out: ("report", "--redact", "--output", str(out / "page.html")),
    "machines": lambda out: ("report", "--machines", "--redact", "--output", str(out / "page.html")),
    "export": lambda out: ("export", "last", str(out), "--redact", "--no-charts"),
    "export machines": lambda out: ("export", "--machines", str(out), "--redact", "--no-charts"),
    "site": lambda out: ("report", "--publish", str(out)),
    "redacted site": lambda out: ("report", "--publish", str(out), "--redact"),
}


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and the contents of all files, those in a page's packed facts and in archives, too."""
    import base64
    import gzip
    import io
    import re
    import tarfile

    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        packed = [base64.b64decode(part) for part in re.findall(rb"[A-Za-z0-9+/]{200,}={0,2}", data) if len(part) % 4 == 0]
        for part in (data, *packed):
            if part[:2] == b"\x1f\x8b":
                part = gzip.decompress(part)
                yield path.name, part.decode(errors="replace")
                try:
                    with tarfile.open(fileobj=io.BytesIO(part)) as archive:
                        assert archive.getnames()
                except tarfile.ReadError:
                    pass
            else:
                yield path.name, part.decode(errors="replace")


@pytest.mark.parametrize("way", WAYS)
def test_a_workloads_message_is_published_on_request_only_and_a_secret_never(
    torchmatrix: Command, recorded: Path, way: str
) -> None:
    out = recorded / "out"
    done = torchmatrix(*WAYS[way](out))
    assert done.returncode == 0, done
    plain = dict(enumerate(texts(out)))
    leaks = [(name, text[max(0, at - 150) : at + 60]) for name, text in plain.values() if (at := text.find(SAID)) >= 0]
    assert plain and not leaks
    assert not [name for name, text in plain.values() if SECRET in text or SECRET[12:] in text]
    if "machines" not in way:
        whole = "".join(text for _, text in plain.values())
        assert WITHHELD in whole and "ended after the time-out of 5 s" in whole
    again = torchmatrix(*WAYS[way](out), "--with-messages", *(["--force"] if "export" in way else []))
    assert again.returncode == 0, again
    shown = [text for _, text in texts(out)]
    assert "machines" in way or any(SAID in text for text in shown)
    assert not any(SECRET in text or SECRET[12:] in text for text in shown)
    if "site" in way:  # and publishing without them takes them away again
        assert torchmatrix(*WAYS[way](out)).returncode == 0
        assert not any(SAID in text for _, text in texts(out))


PLAIN: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "report": lambda out: ("report", "--output", str(out / "page.html")),
    "machines": lambda out: ("report", "--machines", "--output", str(out / "page.html")),
    "history": lambda out: ("history", "--output", str(out / "page.html")),
    "export": lambda out: ("export", "last", str(out), "--no-charts"),
    "export machines": lambda out: ("export", "--machines", str(out), "--no-charts"),
    "gate": lambda out: ("gate", "--markdown", str(out / "g.md"), "--junit", str(out / "g.xml"), "--hook", f"cat > '{out}/h'"),
    "gate as JSON": lambda out: ("gate", "--json"),
    "history as JSON": lambda out: ("history", "--json", "--output", str(out / "page.html")),
    "compare": lambda out: ("compare", "last", "last~1"),
    "charts": lambda out: ("export", "last", str(out)),
    "advise": lambda out: ("advise", "resnet50"),
    "advise about nothing": lambda out: ("advise", "nothing"),
    "audit": lambda out: ("audit", "last"),
}


@pytest.mark.parametrize("way", PLAIN)
@pytest.mark.parametrize("context", ["{}", "HF_TOKEN={}", "https://bob:{}@pypi.corp/simple", "Authorization: Bearer {}"])
def test_what_is_written_without_redact_holds_no_credential_either(
    torchmatrix: Command, tmp_path: Path, way: str, context: str
) -> None:
    """Planted where a workload, an image, a matrix or a command may hold one; the tables in a page are files of their own."""
    secret = SHAPED["Hugging Face"] if context == "{}" else drawn(20)
    planted = context.format(secret)
    for host in ("one", "two"):
        for night in nights(3):
            failed = {
                "outcome": "crashed",
                "workload": "bert-train-fp32-b4",
                "model": "bert",
                "error": f"RuntimeError: {planted}",
            }
            changed = planted if night == nights(3)[-1] else "img"
            long = f"{'x' * 20} {planted}" if night == nights(3)[-1] else "img"  # which is cut in the middle of it
            more = {
                "command": f"docker run -e {planted} img", "torch": planted, "device": planted, "workload_hash": planted,
                "image": {"reference": changed, "environment": "recipe", "requires": [f"torch @ {planted}"]},
                "engine": {"engine": long, "ServerVersion": planted}, "host": {"name": host, "os": long, "cores": [0]},
                "told": [{"event": "remark", "text": planted}, {"event": "settings-changed", "text": planted}],
            }  # fmt: skip
            words: dict[str, Any] = {
                name: f"{name} {planted}" for name in ("unit", "precision", "mode", "optimizer", "runtime", "attention")
            }
            words |= {"compile": True}
            odd = {
                "workload": "odd",
                "rate": 3.0,
                "model": f"m {planted}",
                "job": words | {"compile": True},
                "compile_cache": planted,
            }
            write_run(
                tmp_path / "results", [{"rate": 100.0}, {"rate": 101.0, **more}, failed, odd, {**odd, "devices": (0, 1)}],
                run=night, folder=host, machine=host * 8, command=f"torchmatrix run {planted}", matrix=f"# {planted}\n",
                host={"name": host, "cpu": long, "cores": [0]}, skips=[("c/w/gpu0", planted)],
            )  # fmt: skip
    out = tmp_path / "out"
    out.mkdir()
    done = torchmatrix(*PLAIN[way](out))
    assert done.returncode in (0, 1, 2, 5) and "Traceback" not in done.stderr, done
    assert secret not in done.stdout + done.stderr
    files = list(texts(out))
    assert (files or not list(out.iterdir())) and not [
        (name, text[max(0, at - 90) : at + 50]) for name, text in files if (at := text.find(secret)) >= 0
    ]


COMMENTED = (
    """# {c}
a = "x # y" # {c}
b = '''it's # not
'''''  # {c}
c = """
    + '"""'
    + """ \\" # no """
    + '"' * 5
    + """  # {c}
d = 'C:\\' # {c}
"q#k" = [1, # {c}
 2] # {c}
[x] # {c} = "1"
#{c}"""
)


def test_comments_of_a_matrix_are_not_published_and_its_values_are() -> None:
    plain = without_comments(COMMENTED.replace("{c}", SAID))
    assert SAID not in plain and inputs.toml_of(plain, "", hint="") == inputs.toml_of(COMMENTED, "", hint="")
    assert plain.count("\n") == COMMENTED.count("\n")
    cleaner = Redaction(enabled=False, roots={}, names=Pseudonyms())
    for unreadable in (f"a = # {SAID}", f"a = '\n# {SAID}", "[" * 2000 + f"# {SAID}"):
        shown = cleaner.line({"event": "run", "matrix": unreadable})
        assert shown and SAID not in shown["matrix"] and "not published" in shown["matrix"]
    assert cleaner.line({"event": "run", "matrix": ""}) == {"event": "run", "matrix": ""}


def test_messages_are_asked_for_only_where_they_are_left_out(torchmatrix: Command, recorded: Path) -> None:
    for words in (("report",), ("export", "last", "x")):
        done = torchmatrix(*words, "--with-messages")
        assert done.returncode == 2 and "--redact" in done.stderr
    assert torchmatrix("report").returncode == 0 and SAID in (recorded / "reports/index.html").read_text(encoding="utf-8")


def test_a_real_launch_says_which_message_is_the_tools_own(torchmatrix: Command, fake_matrix: Path) -> None:
    for behaviour, is_own in (("chatty", True), ("crash", False)):
        torchmatrix("run", "*cpu0", "--new", FAKE_BEHAVIOUR=behaviour, TORCHMATRIX_LOG_MB="1", FAKE_TEXT=json.dumps(SAID))
        torchmatrix("report", "--redact")
        page = (fake_matrix.parent / "reports/index.html").read_text(encoding="utf-8")
        assert SAID not in page and ("the workload printed more than 1 MB" in page) is is_own
        assert is_own or WITHHELD in page
