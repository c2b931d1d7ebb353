"""The environment of a workload process: versions, build configuration, devices, installed packages, whitelisted variables."""

import json
import os
import platform
import re
import subprocess
import sys

import torch

import extras
from channel import Unsupported

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "variables.json"), encoding="utf-8") as _file:
    _VARIABLES = json.load(_file)
"""Environment variables that act on a launch: names, or beginnings of names, which end with "_". The host reads this file, too:
variables of the user's shell don't reach a launch by themselves."""
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")

_PATH = list(sys.path)
"""sys.path before a model's library is imported: setuptools then adds the copies of packages that it brings for itself."""


def environment():
    """Return everything about this environment that can affect a figure; a value is None if the stack can't report it."""
    found = {name: extras.attempt("the environment's %s" % name, read) for name, read in _FACTS.items()}
    return dict(found, packages=found["packages"] or [], variables=variables(os.environ))


def variables(environment):
    """Return the variables that act on a launch; "…" replaces the values of secrets and the passwords in addresses."""
    acting = {name: value for name, value in sorted(environment.items()) if _acts(name)}
    return {name: "…" if _is_secret(name) else _PASSWORD.sub("…", value) for name, value in acting.items()}


def _acts(name):
    return _is_among(name, "acting") and not _is_among(name, "idle")


def _is_among(name, group):
    return any(name.startswith(entry) if entry.endswith("_") else name == entry for entry in _VARIABLES[group])


def _is_secret(name):
    return any(word in name.upper() for word in _VARIABLES["secret"])


def device(world):
    """Describe the device of this rank as torch sees it, and its CPUs."""
    return dict(world.kind.facts(), cpus=world.cpus)


def _nccl_version():
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError, TypeError):
        return None


def native_kernels():
    """Return the operators whose eager kernels torch._native replaces, such as "topk by cutedsl"; None before torch 2.12.

    That a library is installed is enough: https://github.com/pytorch/pytorch/tree/main/torch/_native. From 2.15 on, wheels have
    some compiled in for a few GPUs, which no list of torch's names: "topk compiled in for sm_90 sm_100".
    """
    try:
        from torch.backends import python_native as native
    except ImportError:
        return None
    pairs = [(name, library) for library in native.available_dsls for name in native.get_dsl_operations(library)]
    replaced = ["%s by %s" % pair for pair in pairs if not native.is_operation_disabled(pair[0])]
    return ", ".join(sorted(replaced + _compiled_in())) or "none"


def _compiled_in():
    if not getattr(torch._C, "_get_native_aot_enabled", lambda: False)():
        return []
    every = {schema.name.partition("::")[2] for schema in torch._C._jit_get_all_schemas()}
    architectures = {name: getattr(torch.ops._native_aot, name)() for name in every if name.startswith("archs_")}
    return [
        "%s compiled in for %s" % (name[len("archs_") :], " ".join("sm_%d" % number for number in sorted(numbers)))
        for name, numbers in architectures.items()
    ]


def refuse_native_kernels():
    """Raise Unsupported where a launch without native kernels would have some, or can't be told from one with them."""
    found = native_kernels()
    if found != "none":
        text = "torch %s can't leave native kernels out: " % torch.__version__
        raise Unsupported(text + ("it has none, or doesn't say so" if found is None else "it still has " + found))


def _triton_version():
    """Return the version of the installed Triton; a build without metadata is imported, which takes a third of a second."""
    from importlib import metadata

    for name in ("triton", "pytorch-triton", "pytorch-triton-rocm"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    try:
        import triton
    except ImportError:
        return None
    return getattr(triton, "__version__", None)


def _packages():
    from importlib import metadata

    headers = (d.metadata for d in metadata.distributions(path=_PATH))  # each access to .metadata parses the file anew
    versions = {header["Name"]: header["Version"] for header in headers if header["Name"]}
    return ["%s==%s" % item for item in sorted(versions.items(), key=lambda item: item[0].lower())]


def _os_name():
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as lines:
            pairs = dict(line.rstrip().split("=", 1) for line in lines if "=" in line)
    except OSError:
        return platform.platform()
    return pairs.get("PRETTY_NAME", "").strip('"')


def _first_line(command):
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return output.decode(errors="replace").split("\n")[0] or None


_FACTS = {
    "python": platform.python_version,
    "torch": lambda: torch.__version__,
    "torch_git": lambda: getattr(torch.version, "git_version", None),
    "torch_config": lambda: torch.__config__.show(),
    "cuda": lambda: torch.version.cuda,
    "hip": lambda: torch.version.hip,
    "cudnn": lambda: torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
    "nccl": _nccl_version,
    "triton": _triton_version,
    "native_kernels": native_kernels,
    "packages": _packages,
    "glibc": lambda: "-".join(platform.libc_ver()),
    "os": _os_name,
    "compiler": lambda: _first_line(["c++", "--version"]),
    "executable": lambda: sys.executable,
}
"""How each fact of the environment is read, but for its variables."""
