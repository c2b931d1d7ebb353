"""Documentation pages: their links lead somewhere, and they agree with the code."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchmatrix import cli
from torchmatrix.core import assets
from torchmatrix.core.errors import ExitCode

ROOT = Path(cli.__file__).parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors_of(page: Path) -> set[str]:
    """Return the ids that a forge makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors_of(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_script_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"\b(?:tests|findings|docs|images|runner)/[\w/-]+\.(?:py|sh)\b", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(page.read_text())]
    assert set(PAGES) <= reached


def test_the_readme_fits_on_a_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_generated_tables_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "site" / "reference.py"), "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/commands.md"])
def test_every_verb_is_described(page: str) -> None:
    commands = cli.plugins.command().commands
    verbs = [name for name, command in commands.items() if not command.hidden]
    text = (ROOT / page).read_text()
    assert verbs and [verb for verb in verbs if f"| `{verb}` |" not in text] == []


def test_every_exit_code_is_described() -> None:
    text = (ROOT / "docs" / "outcomes.md").read_text()
    assert [code for code in ExitCode if f"\n| {code.value} |" not in text] == []


def decides_by_device(node: ast.AST) -> bool:
    """Return whether an expression checks the kind of device, or calls torch.cuda."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node) == "torch.cuda" or node.attr == "is_gpu"
    if isinstance(node, ast.Compare):
        return any(isinstance(part, ast.Constant) and part.value in ("cuda", "xpu", "cpu") for part in ast.walk(node))
    return isinstance(node, ast.Subscript) and ast.unparse(node.slice) in ("world.kind.name", "args.device")


def functions_that_decide(node: ast.AST, name: str) -> Iterator[str]:
    """Yield the qualified names of the functions below `node` that decide by the kind of device."""
    for child in ast.iter_child_nodes(node):
        if decides_by_device(child):
            yield name
        inner = isinstance(child, ast.FunctionDef | ast.ClassDef)
        yield from functions_that_decide(child, f"{name}.{child.name}".lstrip(".") if inner else name)


def test_every_difference_between_gpu_and_cpu_in_the_workload_is_documented() -> None:
    page = (ROOT / "docs/first-gpu-server.md").read_text()
    table = page.partition("| `devices.py` |")[2].partition("\n\n")[0]
    listed = {name for row in re.findall(r"^\| (`[\w`, ]+`) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    tree = ast.parse((assets.WORKLOAD / "devices.py").read_text())
    (device,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Device")
    targets = [target for node in device.body if isinstance(node, ast.Assign) for target in node.targets]
    names = {node.name for node in device.body if isinstance(node, ast.FunctionDef)}
    names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    assert listed == {"torch"} | {name for name in names if not name.startswith("_")}
    files = [path for path in assets.sources_in(assets.WORKLOAD) if path.suffix == ".py" and path.name != "devices.py"]
    deciding = {
        f"{path.relative_to(assets.WORKLOAD)}: {name}"
        for path in files
        for name in functions_that_decide(ast.parse(path.read_text()), "")
    }
    assert set(re.findall(r"`([\w/]+\.py: [\w.]+)`", page)) == deciding
