"""Archives as `bundle export` writes them, with invented content."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any


def write(path: Path, content: dict[str, bytes], **changes: Any) -> Path:
    """Write an archive of `content` as `bundle export` does; `changes` of its index."""
    entries = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in content.items()}
    index = {"version": 1, "tool": "0", "platform": "linux/amd64", "workload_hash": "w", "images": {}, "files": entries}
    with tarfile.open(path, "w") as tar:
        for name, data in {"bundle.json": json.dumps({**index, **changes}).encode(), **content}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path
