"""Adds what the workload lacks to a vendor's image and keeps the rest as it is; vendor.Dockerfile runs it with its Python.

    record     before: store every installed version, and the SHA-256 of every file of torch and its compute libraries
    install    add the requested packages that are missing; every installed version is a constraint, so pip can replace nothing
    check      after, and again in the self-test: compare the image with the record; prints one line of JSON

Standard library and Python 3.8 only. A refusal is one line that begins with ``error: ``.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

STATE = "/opt/torchmatrix/vendor.json"
MODULES = ("torch", "torchvision", "triton", "numpy", "apex", "transformer_engine")
"""Every file in their folders is guarded: a RECORD may be missing (Debian, setup.py), and doesn't list files added by hand."""
DISTRIBUTIONS = re.compile(r"torch|torchvision|(pytorch-)?triton(-.*)?|numpy|apex|transformer-engine(-.*)?|nvidia-.*")
"""The files that these distributions list are guarded."""
PEP440 = re.compile(
    r"v?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?(-\d+|[-_.]?(post|rev|r)[-_.]?\d*)?"
    r"([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)
"""Versions that pip accepts in a constraint; Debian has others. From https://peps.python.org/pep-0440/, appendix B."""
SHOWN = 5


class Refused(Exception):
    """The image would no longer be the vendor's, or a requested package can't be added to it."""


def parse(argv):
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("record", "install", "check"))
    parser.add_argument("--packages", default="", help="requirements to add")
    parser.add_argument("--usual", default="", help="requirements to add if the image has no version of the package")
    parser.add_argument(
        "--locked", default="", help="a file with the exact packages to add, and their hashes; replaces --packages and --usual"
    )
    parser.add_argument("--state", default=STATE, help="the file that holds the record")
    return parser.parse_args(argv)


def main(argv):
    args = parse(argv)
    try:
        if args.action == "record":
            record(args.state)
        elif args.action == "install":
            if args.locked and os.path.exists(args.locked):
                install_locked(args.locked)
            else:
                install(load(args.state), args.packages.split(), args.usual.split())
        else:
            print(json.dumps(check(load(args.state))))
    except Refused as refusal:
        sys.exit("error: %s" % refusal)


def load(state):
    with open(state, encoding="utf-8") as file:
        return json.load(file)


def record(state):
    """Write what the vendor delivered to the file `state`."""
    files = {package: hashed(paths) for package, paths in kept().items()}
    facts = {
        "python": sys.executable,
        "torch": torch_version(),
        "digests": {package: digest_of(digests) for package, digests in files.items()},
        "versions": versions(),
        "files": files,
    }
    with open(state, "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=0, sort_keys=True)
    print("torch %s of %s, kept: %s" % (facts["torch"], sys.executable, ", ".join(sorted(files))))


def torch_version():
    """Return torch's own version; NGC's look like 2.7.0a0+6c54963f75.nv25.2."""
    import torch

    return str(torch.__version__)


def versions():
    """Return {name: version} of every distribution; of several with one name, the first that this Python finds, as with pip."""
    by_name = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            by_name.setdefault(normal(name), version_of(name) or distribution.version)
    return by_name


def version_of(name):
    """Look `name` up: a walk also finds remains of an interrupted pip ("~umpy"). None where Python 3.8 can't find the name."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement):
    """Return the name in a requirement such as `transformers[torch]==4.57.6`."""
    return normal(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def kept():
    """Return {package: the paths of its files}, for all packages that must not change."""
    paths = {}
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        if spec is not None:
            paths[module] = beneath(spec.submodule_search_locations or ())
    for distribution in metadata.distributions():
        name = normal(distribution.metadata["Name"] or "")
        if DISTRIBUTIONS.fullmatch(name):
            package = "triton" if "triton" in name else name.replace("-", "_")
            paths.setdefault(package, set()).update(listed(distribution))
    return paths


def beneath(folders):
    """Return every file in the folders, at any depth."""
    return {os.path.join(place, name) for folder in folders for place, _, names in os.walk(folder) for name in names}


def listed(distribution):
    """Return the existing files that a distribution's own RECORD lists."""
    paths = {os.path.normpath(str(distribution.locate_file(file))) for file in distribution.files or ()}
    return {path for path in paths if os.path.isfile(path)}


def hashed(paths):
    """Return {path: SHA-256}; "gone" if the file is missing, None if this user may not read it."""
    with ThreadPoolExecutor() as pool:  # hashlib lets other threads run
        return dict(zip(sorted(paths), pool.map(sha256_of, sorted(paths))))


def sha256_of(path):
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except PermissionError:
        return None
    except OSError:
        return "gone"
    return digest.hexdigest()


def digest_of(digests):
    """Return one SHA-256 over the paths of a package and their digests."""
    lines = ["%s  %s\n" % (digest, path) for path, digest in sorted(digests.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def install(vendor, packages, usual):
    """Let pip add what is missing, in versions that fit everything installed. Raises Refused with pip's message."""
    there = {*vendor["versions"], *map(name_of, packages)}
    wanted = packages + [requirement for requirement in usual if name_of(requirement) not in there]
    if not wanted:
        print("nothing is missing: nothing to install")
        return
    with tempfile.TemporaryDirectory() as folder:
        constraints = os.path.join(folder, "constraints.txt")
        with open(constraints, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in constraints_of(vendor["versions"]))
        # pip adds these to the constraints of PIP_CONSTRAINT, which NGC sets from 25.03 on. They don't go into that variable,
        # since they would then also bind the environments in which pip builds packages, and those change nothing here.
        run_pip([*pip(folder), "install", "--progress-bar", "off", "--constraint", constraints, *wanted], wanted)


def install_locked(path):
    """Let pip add the packages in `path` by their hashes, and nothing else. They were chosen under the constraints; pip accepts
    no constraints together with hashes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*pip(folder), "install", "--progress-bar", "off", "--no-deps", "--require-hashes", "--requirement", path]
        run_pip(command, ["what is locked"], {"PIP_CONSTRAINT": ""})


def constraints_of(found):
    """Return lines for pip; versions that pip would not understand are left out, but checked afterwards."""
    return ["%s==%s" % item for item in sorted(found.items()) if PEP440.fullmatch(item[1] or "")]


def pip(folder):
    """Return the command of the image's pip; without one, that of a virtualenv in `folder` that acts on this Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    done = subprocess.run(
        [sys.executable, "-m", "venv", os.path.join(folder, "pip")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        raise Refused("the image has no pip, and creating one in a virtualenv failed: %s" % " ".join(done.stdout.split()))
    return [os.path.join(folder, "pip", "bin", "python"), "-m", "pip", "--python", sys.executable]


def run_pip(command, wanted, more=None):
    # Otherwise a system Python under PEP 668 refuses pip; adding to this image is safe.
    settings = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}
    variables = {**os.environ, **settings, **(more or {})}
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    )
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    if process.wait():
        raise Refused("pip can't add %s to the vendor's packages: %s" % (" ".join(wanted), reason(lines)))


def reason(said):
    """Return pip's output from its first error on, in one line, without advice to loosen versions: they are the vendor's."""
    first = next((i for i, line in enumerate(said) if line.startswith("ERROR")), 0)
    words = " ".join(" ".join(said[first:]).split())
    return words.split(" To fix this ")[0].replace("ERROR: ", "")


def check(vendor):
    """Return what was kept and what was added; raises Refused if anything differs from the record."""
    now = versions()
    wrong = [
        "%s was %s and is %s" % (name, version, now.get(name, "gone"))
        for name, version in sorted(vendor["versions"].items())
        if now.get(name) != version
    ]
    wrong += changes(vendor["files"])
    version = torch_version()
    if version != vendor["torch"]:
        wrong.insert(0, "torch reports version %s instead of %s" % (version, vendor["torch"]))
    if wrong:
        more = ["%d more" % (len(wrong) - SHOWN)] if len(wrong) > SHOWN else []
        raise Refused("the vendor's packages were changed: %s" % "; ".join(wrong[:SHOWN] + more))
    added = ["%s==%s" % item for item in sorted(now.items()) if item[0] not in vendor["versions"]]
    return {"torch": version, "python": vendor["python"], "digests": vendor["digests"], "added": added}


def changes(recorded):
    """Return a line for every file that differs from the record. A file that this user may not read can't affect the runs."""
    paths = kept()
    differences = []
    for package, before in sorted(recorded.items()):
        for path, digest in hashed({*before, *paths.get(package, ())}).items():
            if digest is not None and digest != before.get(path, "gone"):
                how = "is gone" if digest == "gone" else "was changed" if path in before else "was added"
                differences.append("%s: %s %s" % (package, path, how))
    return differences


if __name__ == "__main__":
    main(sys.argv[1:])
