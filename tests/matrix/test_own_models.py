"""A user's own model: requirements on its file, and that every mistake in it is reported with its line."""

import json
from pathlib import Path

import pytest

from torchmatrix.core.errors import BadInput
from torchmatrix.matrix import matrix_file, own_models

STACK = '[[stack]]\ntorch = "2.5.1"\ncpu = true\n'
GOOD = """\
from torch import nn
UNIT = "images"
def net(width=3):
    return nn.Linear(width, 2)
class Net(nn.Module):
    def __init__(self, width=3):
        pass
def batch(size, generator):
    pass
def loss(outputs, targets):
    pass
"""


def matrix_in(folder: Path, model: str, text: str | bytes | None = GOOD, more: str = "") -> matrix_file.Matrix:
    """Return the matrix that names `model`, beside the file net.py with this text."""
    if text is not None:
        (folder / "net.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    path = folder / "matrix.toml"
    path.write_text(f'{STACK}[[workload]]\ndevice = "cpu"\nmodel = "{model}"\nbatch = 4\n{more}')
    return matrix_file.load(path)


def complaint(folder: Path, model: str = "net.py:net", text: str | bytes | None = GOOD) -> str:
    with pytest.raises(BadInput) as raised:
        matrix_in(folder, model, text)
    assert "line 6, [[workload]] 1, model: " in str(raised.value)
    return str(raised.value).partition("model: ")[2]


@pytest.mark.parametrize("name", ["net", "Net"])
def test_a_function_or_a_class_beside_the_matrix_is_a_model(tmp_path: Path, name: str) -> None:
    (workload,) = matrix_in(tmp_path, f"net.py:{name}").workloads
    assert workload.own is not None and workload.own.content == GOOD.encode()
    assert workload.model == f"net.{name}.{workload.own.sha256[:8]}"
    assert workload.id == f"{workload.model}-train-fp32-b4"
    assert (workload.unit, workload.library, workload.optimizer) == ("images", "own", "sgd")
    assert workload.as_record()["own"] == {"path": "net.py", "name": name, "sha256": workload.own.sha256}


def test_what_is_imported_or_defined_under_a_condition_is_there_too(tmp_path: Path) -> None:
    text = "try:\n    from torchvision.models import resnet18 as net\nexcept ImportError:\n    from x import net\n"
    text += "if net:\n    def batch(size, generator):\n        pass\n"
    (workload,) = matrix_in(tmp_path, "net.py:net", text).workloads
    assert workload.unit == "items"


@pytest.mark.parametrize("levels", [980, 1400])
def test_a_long_chain_of_elif_is_read_to_its_end_or_refused(tmp_path: Path, levels: int) -> None:
    """Python's own parser bounds the depth, each version elsewhere."""
    chain = "if loss is None:\n    a = 0\n" + "".join(f"elif loss == {i}:\n    a = {i}\n" for i in range(levels))
    text = GOOD.replace("def net", "def other") + chain + "else:\n    def net():\n        pass\n"
    try:
        (workload,) = matrix_in(tmp_path, "net.py:net", text).workloads
    except BadInput as why:
        assert str(why).endswith("net.py can't be parsed: it is nested too deeply") and levels > 980
    else:
        assert workload.own is not None and workload.own.name == "net"


@pytest.mark.parametrize(
    "more",
    ["x = " + "-" * 100_000 + "1", "x = " + "not " * 50_000 + "1", "x = " + "lambda: " * 20_000 + "1"],
)
def test_what_is_nested_too_deeply_for_python_is_refused_in_words(tmp_path: Path, more: str) -> None:
    assert complaint(tmp_path, text=GOOD + more + "\n") == "net.py can't be parsed: it is nested too deeply"


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("# coding: utf-7\n", "net.py says that it is utf-7: only UTF-8 is read"),
        ("#!/usr/bin/python\n# -*- coding: latin-1 -*-\n", "net.py says that it is iso-8859-1: only UTF-8 is read"),
        ("# vim: set fileencoding=nosuch :\n", "net.py: unknown encoding: nosuch"),
    ],
)
def test_an_encoding_that_the_workload_would_read_otherwise_is_refused(tmp_path: Path, start: str, message: str) -> None:
    assert complaint(tmp_path, text=start + GOOD) == message


def test_a_byte_order_mark_is_as_good_as_none(tmp_path: Path) -> None:
    assert matrix_in(tmp_path, "net.py:net", b"\xef\xbb\xbf" + GOOD.encode()).workloads


@pytest.mark.parametrize(
    "block",
    ["try:\n    pass\nexcept ValueError:\n    ", "for _ in ():\n    ", "match 1:\n    case _:\n        ", "while False:\n    "],
)
def test_an_import_of_another_file_is_found_in_every_block(tmp_path: Path, block: str) -> None:
    assert "imports another file of yours" in complaint(tmp_path, text=f"{GOOD}{block}from . import other\n")


def test_another_content_is_another_cell_and_the_same_one_is_not(tmp_path: Path) -> None:
    ids = [matrix_in(tmp_path, "net.py:net", text).workloads[0].id for text in (GOOD, GOOD + "\n", GOOD)]
    assert ids[0] == ids[2] != ids[1]


def test_lists_multiply_own_models_and_known_ones(tmp_path: Path) -> None:
    matrix_in(tmp_path, "net.py:net")
    path = tmp_path / "matrix.toml"
    path.write_text(path.read_text().replace('"net.py:net"', '["net.py:net", "net.py:Net", "resnet18", "bert-tiny"]'))
    workloads = matrix_file.load(path).workloads
    assert [workload.model.partition(".")[0] for workload in workloads] == ["net", "net", "resnet18", "bert-tiny"]
    assert [workload.factors["image_size"] for workload in workloads] == [None, None, 224, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def net(:\n", "net.py, line 1: "),
        (GOOD.replace("def net(width=3)", "def other()"), "net.py has no net; "),
        (GOOD.replace("width=3)", "width)"), "net.py, line 3: net is called without arguments"),
        (GOOD.replace("def batch", "def batches"), "net.py has no function batch(size, generator)"),
        (GOOD.replace("(size, generator)", "(size)"), "net.py, line 8: batch is called as batch(size, generator)"),
        (GOOD.replace("(size, generator)", "(size, generator, *, seed)"), "net.py, line 8: batch is called as"),
        (GOOD.replace("(outputs, targets)", "()"), "net.py, line 10: loss is called as loss(outputs, targets)"),
        (GOOD.replace('UNIT = "images"', "UNIT = 3"), "net.py, line 2: UNIT must be a word in quotes"),
        (GOOD.replace('"images"', '"<b>"'), "net.py, line 2: UNIT must be a word in quotes"),
        (GOOD + "from .layers import Layer\n", "net.py, line 12: imports another file of yours"),
        (GOOD + 'KEY = "hf_' + "a" * 30 + '"\n', "net.py, line 12: holds a credential"),
        (GOOD + 'URL = "https://me:geheim@example.org"\n', "net.py, line 12: holds a credential"),
        (GOOD.encode() + b"# \xff\n", "net.py, line 12: byte 0xff is not UTF-8"),
        (GOOD + "# " + "x" * (256 << 10), "larger than 256 KiB"),
        ("(" * 5000, "net.py"),
        (GOOD + "\0", "net.py"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in complaint(tmp_path, text=text)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("net.py", 'write "net.py:NAME"; it has net, Net'),
        ("net.py:nett", 'net.py has no nett; did you mean "net"?'),
        ("nett.py:net", 'there is no file nett.py in the folder of the matrix; did you mean "net.py"?'),
        ("../net.py:net", "is not written as path/to/file.py:NAME"),
        ("/etc/net.py:net", "is not written as path/to/file.py:NAME"),
        ("net.py:net:net", "is not written as path/to/file.py:NAME"),
        ("nowhere/net.py:net", "there is no file nowhere/net.py"),
    ],
)
def test_a_reference_that_leads_nowhere_is_reported_with_what_is_there(tmp_path: Path, model: str, message: str) -> None:
    assert message in complaint(tmp_path, model)


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "elsewhere.py", tmp_path / "m"
    outside.write_text(GOOD)
    inside.mkdir()
    (inside / "net.py").symlink_to(outside)
    assert "leads out of the folder of the matrix" in complaint(inside, text=None)
    (inside / "net.py").unlink()
    (inside / "real.py").write_text(GOOD)
    (inside / "net.py").symlink_to("real.py")
    assert matrix_in(inside, "net.py:net", None).workloads
    (inside / "net.py").unlink()
    (inside / "net.py").symlink_to("net.py")
    assert "net.py" in complaint(inside, text=None)
    (inside / "net.py").unlink()
    (inside / "net.py").mkdir()
    assert "net.py is a folder, not a file" in complaint(inside, text=None)


def test_a_matrix_without_a_folder_says_that_it_has_none() -> None:
    with pytest.raises(BadInput, match=r"net\.py can't be found: this matrix is not a file"):
        matrix_file.parse(f'{STACK}[[workload]]\ndevice = "cpu"\nmodel = "net.py:net"\nbatch = 4\n')


def test_names_of_models_are_not_taken_for_files() -> None:
    assert not any(
        map(own_models.is_own, ("resnet50", "timm.resnet50d", "bert-base-cased", "timm.vit_tiny_patch16_224.py_in1k"))
    )


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "max_position_embeddings": 256}


def config_in(folder: Path, content: object) -> matrix_file.Matrix:
    (folder / "mine").mkdir(exist_ok=True)
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    (folder / "mine/config.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return matrix_in(folder, "mine/config.json", more="sequence_length = 64\n")


def test_the_configuration_of_a_language_model_is_a_model_that_counts_tokens(tmp_path: Path) -> None:
    (workload,) = config_in(tmp_path, CONFIG).workloads
    assert workload.own is not None and workload.model == f"config.llama.{workload.own.sha256[:8]}"
    assert (workload.unit, workload.library, workload.optimizer) == ("tokens", "transformers", "adamw")
    assert workload.own.positions == 256 and workload.factors["sequence_length"] == 64


@pytest.mark.parametrize(
    "content",
    [
        {**CONFIG, "vocab_size": None, "quantization_config": None, "n_positions": 64},
        {**CONFIG, "max_position_embeddings": None, "n_positions": 256},
        {**CONFIG, "max_position_embeddings": 258, "model_type": "xlm-roberta"},  # two rows are the padding's
        {**CONFIG, "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
        {"architectures": ["FuyuForCausalLM"], "model_type": "fuyu", "text_config": {"max_position_embeddings": 256}},
        {**CONFIG, "time_step_limit": [0.0, float("inf")]},  # as transformers 4 writes it
        b"\xef\xbb\xbf" + json.dumps(CONFIG).encode(),
    ],
)
def test_a_configuration_as_the_library_writes_it_is_taken(tmp_path: Path, content: object) -> None:
    (workload,) = config_in(tmp_path, content).workloads
    assert workload.own is not None and workload.own.positions == 256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{no", "mine/config.json is not valid JSON: "),
        (
            json.dumps(CONFIG)[:-1] + ', "x": ' + "[" * 990 + "]" * 990 + "}",
            "mine/config.json is not valid JSON: more than 16 lists",
        ),
        (json.dumps(CONFIG)[:-1] + ', "x": ' + "[" * 40 + "]" * 40 + "}", "mine/config.json, x 1 1 1: more than 16 lists"),
        (json.dumps(CONFIG).encode("utf-16"), "can't read mine/config.json, line 1: byte 0xff is not UTF-8"),
        (json.dumps(CONFIG).encode("utf-16-le"), "mine/config.json, line 1: a NUL byte"),
        (json.dumps(CONFIG).encode("utf-32"), "can't read mine/config.json, line 1: byte 0xff is not UTF-8"),
        *(
            ({**CONFIG, key: value}, f"mine/config.json: {key} must be a whole number above 0, not {json.dumps(value)}")
            for key in ("max_position_embeddings", "n_positions", "vocab_size", "hidden_size")
            for value in ("256", True, 1e300, 64.0, 0, -1, [64])
        ),
        ({**CONFIG, "text_config": {"vocab_size": "256"}}, "mine/config.json: vocab_size must be a whole number above 0"),
        ({**CONFIG, "n_positions": 2**64}, "mine/config.json, n_positions: a whole number of more than 64 bits"),
        *(
            ({**CONFIG, "quantization_config": value}, "mine/config.json: quantization_config must be a table")
            for value in ("mxfp4", ["mxfp4"], [], 4, True, {"quant_method": ["mxfp4"]}, {"quant_method": None})
        ),
        ([1], "mine/config.json has no model_type, "),
        ({**CONFIG, "model_type": 4}, "mine/config.json has no model_type, "),
        ({**CONFIG, "model_type": "../llama"}, 'mine/config.json: transformers has no model_type "../llama" of its own'),
        ({**CONFIG, "model_type": "Yi"}, 'mine/config.json: transformers has no model_type "Yi" of its own, and code of a'),
        ({**CONFIG, "architectures": None}, "mine/config.json has no head that is known: "),
        ({**CONFIG, "architectures": ["BertForMaskedLM"]}, "mine/config.json has no head that is known: "),
        ({**CONFIG, "token": "hf_" + "a1B2" * 9}, "mine/config.json, line 1: holds a credential; "),
        ({**CONFIG, "hidden_size": "hf_" + "a1B2" * 9}, "mine/config.json, line 1: holds a credential; "),
    ],
)
def test_a_configuration_that_names_no_language_model_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        config_in(tmp_path, content)
    assert f"model: {message}" in str(raised.value)
