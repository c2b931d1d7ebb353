"""Choose the engines of a command: by name, or by what this machine offers. Imports an engine only once it is chosen."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmatrix.core import plugins
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.engines import endpoints

if TYPE_CHECKING:
    from torchmatrix.engines.engine import Engine
    from torchmatrix.matrix.stacks import Stack

_CORE = ("auto", "docker", "podman", "local")
HOW_TO_HAVE_CONTAINERS = "start Docker or set DOCKER_HOST, or use --engine podman"
VARIABLES = "(DOCKER|CONTAINER)"
"""Prefixes of the variables that say where an engine is and how to reach it, as a regular expression."""
SERVICES = ("docker.service", "podman.socket")
"""The units that systemd should have started before a launch."""


def names() -> tuple[str, ...]:
    """Return the choices; auto takes containers if a daemon answers."""
    return (*_CORE[:-1], *(name for name in plugins.names(plugins.ENGINES) if name not in _CORE), _CORE[-1])


def _is_engine(made: object) -> bool:
    """Check whether something has what an engine is asked for first."""
    return not isinstance(made, type) and all(hasattr(made, name) for name in ("name", "facts", "is_ready"))


def schedulers() -> tuple[str, ...]:
    """Return further choices of `run`: each launch is a job on a node, which chooses among names() (running/scheduler.py)."""
    return tuple(name for name in plugins.names(plugins.SCHEDULERS) if name not in names())


@dataclass(frozen=True, kw_only=True, slots=True)
class Engines:
    """The engines of one command. `builder`: builds and runs stacks; `local`: runs interpreters of this machine.

    `why`: which builder it is and why, in words.
    """

    builder: "Engine"
    local: "Engine"
    why: str

    @property
    def every(self) -> "tuple[Engine, ...]":
        """Return each engine once."""
        return (self.local,) if self.builder is self.local else (self.local, self.builder)

    def for_stack(self, stack: "Stack") -> "Engine":
        """Return the engine for a stack: the local one for an interpreter of this machine, the chosen one for all others."""
        return self.local if stack.source == "interpreter" else self.builder


def choose(name: str, owner: str) -> Engines:
    """Return the engines for one of names(). `owner` marks what they start. Raises EngineUnusable if a requested one is
    absent.
    """
    if name in schedulers():
        raise BadInput("only `torchmatrix run` works on a cluster", hint=f"engines of the other verbs: {', '.join(names())}")
    if name not in names():
        raise BadInput(f'unknown engine "{name}"', hint=f"engines: {', '.join(names())}")
    from torchmatrix.core.settings import cache_folder
    from torchmatrix.engines.local import LocalEngine

    cache = cache_folder()
    local = LocalEngine(cache, owner)
    if name == "local":
        return Engines(builder=local, local=local, why=f"local (as requested); virtualenvs under {cache}")
    if name not in _CORE:
        builder = plugins.made(plugins.ENGINES, name, _is_engine, cache / name, owner)
        return Engines(builder=builder, local=local, why=f"{name} (as requested); images under {cache}")
    if name == "podman":
        return _podman(local)
    try:
        builder, where = _docker(may_be_missing=name == "auto")
    except EngineUnusable as error:
        if name == "docker" or endpoints.is_asked():
            raise
        return Engines(builder=local, local=local, why=f"local, because {error}; virtualenvs under {cache}")
    return Engines(builder=builder, local=local, why=f"docker at {where}")


def _docker(may_be_missing: bool) -> "tuple[Engine, str]":
    """Return Docker, and where it answers. Raises EngineUnusable; with `may_be_missing`, at once if there is no socket."""
    where = endpoints.endpoint()
    if may_be_missing and where.is_missing:
        raise EngineUnusable("no Docker socket was found", hint=HOW_TO_HAVE_CONTAINERS)
    from torchmatrix.engines.docker import DockerEngine, connect

    return DockerEngine(connect(where), where), where.in_words


def _podman(local: "Engine") -> Engines:
    from torchmatrix.engines.docker import DockerEngine, connect

    where = endpoints.Endpoint(host=endpoints.podman_address())
    builder = DockerEngine(connect(where, "Podman"), where)
    if builder.name != "podman":
        raise EngineUnusable(f"at {where.host} Docker answers, not Podman", hint="CONTAINER_HOST says where Podman does")
    return Engines(builder=builder, local=local, why=f"podman at {where.host}")
