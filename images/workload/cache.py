"""The compile cache: a folder kept from launch to launch, so that compile time is measured once, from an empty cache.

A folder is `warm` only if an earlier launch sealed it after a complete measurement. What an interrupted launch left
behind is removed, so that `cold` always means empty. Without a folder every launch is `cold`.
"""

import os
import shutil
import tempfile

_SEAL = "complete"


def prepare(folder, rank):
    """Point torch's and the GPU libraries' caches into `folder`; returns "cold" or "warm". Call before importing torch."""
    state = "warm" if folder and os.path.exists(os.path.join(folder, _SEAL)) else "cold"
    if not folder:
        folder = tempfile.mkdtemp(prefix="torchmatrix-cache-")
    elif state == "cold" and rank == 0:
        _empty(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    os.environ["MIOPEN_USER_DB_PATH"] = os.path.join(folder, "miopen")
    os.environ["MIOPEN_CUSTOM_CACHE_DIR"] = os.path.join(folder, "miopen-kernels")
    os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = "1"
    os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "1"
    return state


def seal(folder, rank):
    """Mark `folder` as filled by a complete launch."""
    if folder and rank == 0:
        with open(os.path.join(folder, _SEAL), "w"):
            pass


def _empty(folder):
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.remove(path)
