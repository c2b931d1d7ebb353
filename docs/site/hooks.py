"""Brings into the site what stands outside docs/: the README as its home, contributing, changelog, and the example report.

On a forge these are ordinary relative links; here the links are rewritten to where the files are in the site.
"""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "reports/example/index.html": "example/index.html",
    "reports/example/screenshot.png": "example/screenshot.png",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the files from outside."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for style in config.extra_css:
        files.append(File.generated(config, style, abs_src_path=str(ROOT / "docs" / "site" / style)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links from and to these files at their places in the site."""
    at_top = page.file.src_uri in OUTSIDE.values()
    for source, target in OUTSIDE.items():
        for end in (")", "#"):
            markdown = markdown.replace(f"]({'' if at_top else '../'}{source}{end}", f"]({target}{end}")
    return markdown.replace("](docs/", "](") if at_top else markdown
