"""Models of the user's own: one file next to the matrix, read and checked here, run only in a container.

A Python file has the builder of the model, `batch` and, unless the model returns its loss itself, `loss` (docs/own-model.md).
A JSON file is the configuration of a language model, as transformers writes it (config.json).
"""

import ast
import hashlib
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from torchmatrix.core import credentials, inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import printable
from torchmatrix.core.toml_keys import nearest, shown
from torchmatrix.matrix import catalog
from torchmatrix.matrix.catalog import OWN, Model

HINT = "docs/own-model.md shows an example on one page"
HASH_DIGITS = 8
"""The digits of the file's hash in ids."""
_PART = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"
_CONFIG = re.compile(rf"(?:{_PART}/)*{_PART}\.json")
_HEADS = ("ForCausalLM", "LMHeadModel")
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "n_positions")
"""Keys whose values are whole numbers in every language model of transformers 4.57 and 5.24."""
_REFERENCE = re.compile(rf"(?P<path>(?:{_PART}/)*{_PART}\.py)(?::(?P<name>[A-Za-z_][A-Za-z0-9_]*))?")
_UNIT = re.compile(r"[a-z][a-z ]{0,30}")
_ARGUMENTS = {"batch": "(size, generator)", "loss": "(outputs, targets)"}
_BLOCKS = ast.stmt | ast.excepthandler | ast.match_case
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
"""The statements with a scope of their own: names in it aren't the file's."""
Definition = _SCOPES | ast.stmt


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnModel:
    """A model. `path`: of its file, as the matrix writes it; `name`: of the function or class that builds it; `content`."""

    path: str
    name: str
    unit: str
    content: bytes = field(repr=False)
    positions: int | None = None

    @property
    def sha256(self) -> str:
        """Return the hash of the file."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def id(self) -> str:
        """Return the name in ids and facts, such as tiny.Tiny.3fa94c21: another content is another model."""
        return f"{PurePosixPath(self.path).stem}.{self.name}.{self.sha256[:HASH_DIGITS]}"

    def as_model(self) -> Model:
        """Return the model as an entry of the catalog."""
        if is_config(self.path):
            return replace(
                catalog.default_of("transformers"), name=self.id, unit=self.unit, positions=self.positions, generates=True
            )
        return Model(
            name=self.id, library=OWN, unit=self.unit, optimizer="sgd", takes=(), parameters=None, forward_flops=None,
            flops_per=None,
        )  # fmt: skip

    def as_record(self) -> dict[str, str]:
        """Return the fields for the facts."""
        return {"path": self.path, "name": self.name, "sha256": self.sha256}


def is_own(model: str) -> bool:
    """Check whether `model` in the matrix names a file rather than a known model."""
    return is_config(model) or (".py" in model and (model.partition(":")[0].endswith(".py") or "/" in model))


def is_config(model: str) -> bool:
    """Check whether `model` in the matrix names a file with a configuration."""
    return model.endswith(".json")


def means(reference: str, model: str) -> bool:
    """Check whether `model`, an id (see OwnModel.id), is of the file and name in `reference`; the content may differ."""
    if is_config(reference):
        return model.startswith(f"{PurePosixPath(reference).stem}.")
    match = _REFERENCE.fullmatch(reference)
    return match is not None and model.startswith(f"{PurePosixPath(match['path']).stem}.{match['name']}.")


def read(model: str, folder: Path | None) -> OwnModel:
    """Read the model that "path/to/file.py:NAME" names; the path is relative to `folder`, that of the matrix.

    Raises BadInput, naming file and line, if the file can't be read or can't define such a model.
    """
    if is_config(model):
        return _read_config(model, folder)
    match = _REFERENCE.fullmatch(model)
    if not match:
        raise _wrong(
            f'"{shown(model)}" is not written as path/to/file.py:NAME, with a path below the folder of the matrix, of letters, '
            "digits and . _ + - only"
        )
    path = match["path"]
    content = _content(path, folder)
    definitions = _definitions(path, _parse(path, content))
    name = _builder_name(path, match["name"], definitions)
    _check_builder(path, name, definitions[name])
    for function, arguments in _ARGUMENTS.items():
        _check_function(path, function, arguments, definitions)
    return OwnModel(path=path, name=name, unit=_unit(path, definitions), content=content)


def _read_config(path: str, folder: Path | None) -> OwnModel:
    """Read a language model's configuration. Raises BadInput if the file can't be one, or names no head that is known."""
    if not _CONFIG.fullmatch(path):
        raise _wrong(f'"{shown(path)}" is not a path below the folder of the matrix, of letters, digits and . _ + - only')
    content = _content(path, folder)
    _refuse_credentials(path, content.decode(errors="replace"))
    config = inputs.json_of(content, path, hint=HINT, takes_infinity=True)
    _refuse_credentials(f"{path} without its escapes", json.dumps(config, ensure_ascii=False))
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(kind, str):
        raise _wrong(f"{path} has no model_type, which names the code of transformers that builds the model")
    if not re.fullmatch(r"[a-z][a-z0-9_.-]{0,40}", kind):
        raise _wrong(f'{path}: transformers has no model_type "{shown(kind)}" of its own, and code of a repository isn\'t run')
    heads = config.get("architectures")
    if not (isinstance(heads, list) and len(heads) == 1 and str(heads[0]).endswith(_HEADS)):
        ends = " or ".join(_HEADS)
        raise _wrong(f"{path} has no head that is known: architectures must be one name that ends with {ends}")
    text = config.get("text_config")
    for key, value in [*config.items(), *(text.items() if isinstance(text, dict) else ())]:
        if key in _SIZES and not (value is None or (type(value) is int and value > 0)):
            raise _wrong(f"{path}: {key} must be a whole number above 0, not {inputs.short_json(value)}")
    weights = config.get("quantization_config")
    if weights is not None and not (isinstance(weights, dict) and isinstance(weights.get("quant_method", ""), str)):
        raise _wrong(f"{path}: quantization_config must be a table whose quant_method is a text")
    return OwnModel(path=path, name=kind, unit="tokens", content=content, positions=catalog.positions_in(config))


def _refuse_credentials(path: str, text: str) -> None:
    if line := credentials.line_of_first(text):
        raise _wrong(f"{path}, line {line}: holds a credential; the file is copied into results, bundles and boxes: remove it")


def _wrong(message: str) -> BadInput:
    return BadInput(message, hint=HINT)


def _content(path: str, folder: Path | None) -> bytes:
    if folder is None:
        raise _wrong(f"{path} can't be found: this matrix is not a file, so no path is relative to it")
    place = folder / path
    try:
        if not place.resolve().is_relative_to(folder.resolve()):
            raise _wrong(f"{path} leads out of the folder of the matrix (a symbolic link): copy the file there")
        return inputs.read_bytes(place, hint=HINT, most_bytes=inputs.SMALL_FILE_BYTES)
    except FileNotFoundError:
        if place.is_symlink():
            raise _wrong(f"{path} is a link that leads to no file") from None
        others = (
            [str(file.relative_to(folder)) for file in place.parent.glob(f"*{place.suffix}")] if place.parent.is_dir() else []
        )
        near = f"; {nearest(path, others)}" if others else ""
        raise _wrong(f"there is no file {path} in the folder of the matrix{near}") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other, before Python 3.13
        raise _wrong(f"can't read {path}: {error}") from None


def _parse(path: str, content: bytes) -> ast.Module:
    try:
        text = content.decode()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if not encoding.startswith("utf-8"):
            raise _wrong(f"{path} says that it is {encoding}: only UTF-8 is read")
        tree = ast.parse(content, filename=path)
    except UnicodeDecodeError as error:
        place = content.count(b"\n", 0, error.start) + 1
        raise _wrong(f"{path}, line {place}: byte {content[error.start]:#04x} is not UTF-8") from None
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}" if error.lineno else path
        raise _wrong(f"{where}: {printable(error.msg)}") from None
    except ValueError as error:
        raise _wrong(f"{path} can't be parsed: {error}") from None
    except (RecursionError, MemoryError):
        raise _wrong(f"{path} can't be parsed: it is nested too deeply") from None
    _refuse_credentials(path, text)
    return tree


def _definitions(path: str, tree: ast.Module) -> dict[str, Definition]:
    """Map the names of the file to their statements, also within `if` and `try`. Raises BadInput for imports of other files."""
    definitions: dict[str, Definition] = {}
    for statement in _statements(tree.body):
        if isinstance(statement, ast.ImportFrom) and statement.level:
            raise _wrong(f"{path}, line {statement.lineno}: imports another file of yours; only this one is in the container")
        for name in _names(statement):
            definitions[name] = statement
    return definitions


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body in order, also those in `if`, `try` and the like, at any depth: `elif` adds a level."""
    pending: list[ast.AST] = [*reversed(body)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, _BLOCKS) and not isinstance(node, _SCOPES):
            pending += reversed([*ast.iter_child_nodes(node)])


def _names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, _SCOPES):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def _builder_name(path: str, name: str | None, definitions: Mapping[str, Definition]) -> str:
    """Return the name of the model's builder. Raises BadInput if the matrix names nothing of the file."""
    if name in definitions:
        return str(name)
    builders = [
        defined
        for defined, node in definitions.items()
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and defined not in _ARGUMENTS and not defined.startswith("_")
    ]
    if name is None:
        has = f"; it has {', '.join(builders[:5])}" if builders else ""
        raise _wrong(f'{path} alone doesn\'t say what builds the model: write "{path}:NAME"{has}')
    raise _wrong(f"{path} has no {name}; {nearest(name, builders)}" if builders else f"{path} has no {name}")


def _check_builder(path: str, name: str, node: Definition) -> None:
    """Check that the builder is a function or a class that can be called without arguments."""
    passed = 0
    if isinstance(node, ast.ClassDef):
        init = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
        node, passed = init or node, 1  # `self` is passed
    if isinstance(node, ast.FunctionDef) and _required(node) > passed:
        message = f"{name} is called without arguments to build the model, but some have no default"
        raise _wrong(f"{path}, line {node.lineno}: {message}")


def _check_function(path: str, name: str, arguments: str, definitions: Mapping[str, Definition]) -> None:
    node = definitions.get(name)
    if node is None and name == "batch":
        raise _wrong(f"{path} has no function batch{arguments}, which makes the random inputs and targets")
    if isinstance(node, ast.AsyncFunctionDef | ast.ClassDef):
        raise _wrong(f"{path}, line {node.lineno}: {name} must be a function {name}{arguments}")
    if isinstance(node, ast.FunctionDef) and not _takes_two(node):
        raise _wrong(f"{path}, line {node.lineno}: {name} is called as {name}{arguments}; it can't take these arguments")


def _required(node: ast.FunctionDef) -> int:
    """Count the arguments without a default."""
    arguments = node.args
    keywords = sum(default is None for default in arguments.kw_defaults)
    return len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults) + keywords


def _takes_two(node: ast.FunctionDef) -> bool:
    arguments = node.args
    most = len(arguments.posonlyargs) + len(arguments.args)
    return _required(node) <= 2 and (most >= 2 or arguments.vararg is not None) and None not in arguments.kw_defaults


def _unit(path: str, definitions: Mapping[str, Definition]) -> str:
    """Return UNIT of the file: the items that the model processes."""
    node = definitions.get("UNIT")
    if node is None:
        return "items"
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and _UNIT.fullmatch(value.value):
        return value.value
    raise _wrong(f'{path}, line {node.lineno}: UNIT must be a word in quotes, such as UNIT = "images"')
