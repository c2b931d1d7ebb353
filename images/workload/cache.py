"""The compile cache: a folder kept from launch to launch, so that compile time is measured once, from an empty cache.

A folder is `warm` only if an earlier launch sealed it after a complete measurement. The files that an interrupted launch left
are removed, so that `cold` always means empty. Without a folder every launch is `cold`.

A sealed folder is only read: libraries write locks into a cache even when they find everything in it, so they get a copy.
"""

import os
import shutil
import tempfile

_SEAL, _DATA = "complete", "data"


def prepare(folder, rank, sealed=""):
    """Point torch's and the GPU libraries' caches into `folder`, which begins as a copy of `sealed` if that is given.

    Return "cold" or "warm". Call before importing torch.
    """
    source = sealed or folder
    state = "warm" if source and os.path.exists(os.path.join(source, _SEAL)) else "cold"
    if not folder:
        folder = make_temporary("torchmatrix-cache-")
    elif rank == 0 and (sealed or state == "cold"):
        _empty(folder)
        if sealed:
            _copy(sealed, folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    os.environ["MIOPEN_USER_DB_PATH"] = os.path.join(folder, "miopen")
    os.environ["MIOPEN_CUSTOM_CACHE_DIR"] = os.path.join(folder, "miopen-kernels")
    os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = "1"
    os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "1"
    return state


def data_folder(args, makes):
    """Return the folder for data sets, and whether it is "kept": it lies in the sealed folder once a launch has sealed it.
    A "temporary" one is made by the rank that `makes` it; others get ""."""
    sealed = os.path.join(args.sealed_cache, _DATA) if args.sealed_cache else ""
    if sealed and os.path.isdir(sealed):
        return sealed, "kept"
    if args.cache:
        return os.path.join(args.cache, _DATA), "kept"
    return make_temporary("torchmatrix-data-") if makes else "", "temporary"


_temporary = []
"""Folders that nothing keeps."""


def make_temporary(prefix):
    """Make a folder that `remove_temporary` removes, below TMPDIR."""
    _temporary.append(tempfile.mkdtemp(prefix=prefix))
    return _temporary[-1]


def remove_temporary():
    """Remove what this process has put into temporary folders, as it ends."""
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)


def seal(folder, rank):
    """Mark `folder` as filled by a complete launch."""
    if folder and rank == 0:
        with open(os.path.join(folder, _SEAL), "w", encoding="utf-8"):
            pass


def _empty(folder):
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.remove(path)


def _copy(sealed, folder):
    """Copy the contents of files, not their modes: a sealed file can't be written, its copy can."""
    for root, folders, names in os.walk(sealed):
        if root == sealed and _DATA in folders:  # it is read where it lies
            folders.remove(_DATA)
        target = os.path.join(folder, os.path.relpath(root, sealed))
        os.makedirs(target, exist_ok=True)
        for name in names:
            shutil.copyfile(os.path.join(root, name), os.path.join(target, name))
