"""List the environment variables that an installed torch reads, and that images/workload/variables.json doesn't know.

Usage: python tests/variables.py SITE_PACKAGES …   (of a stack of each torch; after a release, sort what it lists into the file)

Read from the source of torch, Triton and torchvision, without their tests: os.environ, os.getenv, functions with "env" in their
names, and the `env_name…` of torch's configuration. What C++ reads by itself isn't seen: there, beginnings of names count.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

KNOWN = Path(__file__).parents[1] / "images" / "workload" / "variables.json"
LIBRARIES = ("torch", "triton", "torchvision")
NOT_RUN = ("torch/testing/", "torch/utils/collect_env", "torch/utils/benchmark/", "torch/utils/hipify/")
"""What no launch runs."""
TESTS = ("_internal_testing.py", "_test_runner.py", "_compile_warmup.py", "_compile_warmup_pool.py")


def read_by(site: Path) -> dict[str, str]:
    """Return the names that the libraries in `site` read, each with the first file that does."""
    names: dict[str, str] = {}
    for path in sorted(path for library in LIBRARIES for path in (site / library).rglob("*.py")):
        place = str(path.relative_to(site))
        if place.startswith(NOT_RUN) or path.name in TESTS or b"env" not in (text := path.read_bytes()):
            continue
        for name in filter(None, _names(ast.parse(text))):
            if name.isupper() and name.replace("_", "").isalnum() and not name[0].isdigit():
                names.setdefault(name, place)
    return names


def unknown(site: Path) -> dict[str, str]:
    """Return those of `read_by` that the file sorts nowhere."""
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    entries = [*known["acting"], *known["idle"]]
    return {name: place for name, place in read_by(site).items() if not any(_matches(name, entry) for entry in entries)}


def _matches(name: str, entry: str) -> bool:
    return name.startswith(entry) if entry.endswith("_") else name == entry


def _names(tree: ast.AST) -> Iterator[str | None]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if "env" in ast.unparse(node.func).lower():
                yield from map(_text, node.args[:1])
            for keyword in node.keywords:
                if (keyword.arg or "").startswith("env_name"):
                    yield from map(_text, ast.walk(keyword.value))
        elif isinstance(node, ast.Subscript) and _is_environ(node.value):
            yield _text(node.slice)
        elif isinstance(node, ast.Compare) and any(map(_is_environ, node.comparators)):
            yield _text(node.left)


def _is_environ(node: ast.AST) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        for variable, file in sorted(unknown(Path(folder)).items()):
            print(variable, file)
