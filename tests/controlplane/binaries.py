"""Where the programs of a control plane come from: found, or compiled from their Go modules.

As a program, with nothing but the standard library, it gets them for whoever wants them early; with
the argument ``helm`` it prints where that is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ETCD",
    "HELM",
    "KUBERNETES",
    "PROGRAMS",
    "MissingProgramsError",
    "Programs",
    "find_helm",
    "go_client",
    "provide",
]

ETCD = "3.6.7"
HELM = "3.19.4"
KUBERNETES = "1.36.3"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_MODULES = Path(__file__).parent / "modules"
_VERSION = "k8s.io/component-base/version"
_BUILD_LIMIT_S = 3600.0

Say = Callable[[str], None]


class MissingProgramsError(Exception):
    """A program of the control plane is nowhere to be had."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs, by path."""

    etcd: Path
    apiserver: Path
    controller_manager: Path
    scheduler: Path


def cache_folder(
    environment: Mapping[str, str], versions: str = f"etcd-{ETCD}-kubernetes-{KUBERNETES}"
) -> Path:
    """Return where compiled programs of these versions are kept between runs."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lean-sandbox" / "controlplane" / versions


def provide(environment: Mapping[str, str], say: Say = print) -> Programs:
    """Return the programs: those of KUBEBUILDER_ASSETS, those compiled before, or compile them.

    Each program is looked for by itself, for the assets of others come without the controller
    manager. Compiling takes about ten minutes on two cores the first time; ``say`` is told.

    Raises:
        MissingProgramsError: naming what is missing and how to get it.
        subprocess.CalledProcessError: Go could not compile.

    """
    cache = cache_folder(environment)
    assets = environment.get("KUBEBUILDER_ASSETS", "")
    folders = ([Path(assets)] if assets else []) + [cache]
    found = {name: path for name in PROGRAMS if (path := _find(name, folders)) is not None}
    missing = [name for name in PROGRAMS if name not in found]
    if missing:
        go = shutil.which("go", path=environment.get("PATH", ""))
        if go is None:
            looked = " and ".join(map(str, folders))
            raise MissingProgramsError(
                f"A real control plane needs {', '.join(missing)}: not in {looked}, and there is"
                " no Go toolchain to compile them. Install Go, or set KUBEBUILDER_ASSETS to a"
                " folder that holds them."
            )
        for name in missing:
            say(f"compiling {name} into {cache}; the first time takes minutes")
            found[name] = _compile(go, name, cache, environment)
    return Programs(*(found[name] for name in PROGRAMS))


def find_helm(environment: Mapping[str, str]) -> Path | None:
    """Return helm as it was compiled before, or else that of the machine, if there is one."""
    path = environment.get("PATH", "").split(os.pathsep)
    return _find("helm", [cache_folder(environment, f"helm-{HELM}"), *map(Path, path)])


def _compile_helm(environment: Mapping[str, str], say: Say = print) -> None:
    """Compile helm where there is none; only the tests of the chart need it, and say so without."""
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None or find_helm(environment) is not None:
        return
    package = f"helm.sh/helm/v3/cmd/helm@v{HELM}"
    target = {"CGO_ENABLED": "0", "GOBIN": str(cache_folder(environment, f"helm-{HELM}"))}
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [go, "install", "-trimpath", "-ldflags", "-s -w", package],
        env={**environment, **target},
        check=False,
        timeout=_BUILD_LIMIT_S,
    )
    if done.returncode:
        say("helm could not be compiled: the tests of the chart are left out")


def go_client(environment: Mapping[str, str]) -> Path:
    """Return the client in Go (``modules/client``), compiled unless it was before.

    Raises:
        MissingProgramsError: there is no Go.
        subprocess.CalledProcessError: Go could not compile.

    """
    sources = sorted((_MODULES / "client").iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    cache = cache_folder(environment, f"client-{digest[:16]}")
    found = _find("client", [cache])
    if found is not None:
        return found
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise MissingProgramsError("The tests of clients in Go need a Go toolchain. Install Go.")
    return _compile(go, "client", cache, environment)


def _find(name: str, folders: list[Path]) -> Path | None:
    for folder in folders:
        path = folder / name
        if os.access(path, os.X_OK) and path.is_file():
            return path.absolute()
    return None


def _compile(go: str, name: str, cache: Path, environment: Mapping[str, str]) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    draft = cache / f".{name}.{os.getpid()}"
    module = "kube"
    package = f"./{name}"
    flags = "-s -w"
    if name in ("etcd", "client"):
        module = name
        package = "."
    else:
        # Without it a server says that it is v0.0.0, and rules for newer versions are off.
        major, minor, _ = KUBERNETES.split(".")
        flags += f" -X {_VERSION}.gitVersion=v{KUBERNETES}"
        flags += f" -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
    # Whoever works on this machine comes first.
    polite = [nice] if (nice := shutil.which("nice")) else []
    try:
        subprocess.run(  # noqa: S603 - fixed arguments
            [*polite, go, "build", "-trimpath", "-ldflags", flags, "-o", str(draft), package],
            cwd=_MODULES / module,
            env={**environment, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
            check=True,
            timeout=_BUILD_LIMIT_S,
        )
        # In one step: two runs that compile at once do not see each other's halves.
        draft.replace(cache / name)
    finally:
        draft.unlink(missing_ok=True)
    return cache / name


if __name__ == "__main__":
    if sys.argv[1:] == ["helm"]:
        found_helm = find_helm(os.environ)
        if found_helm is None:
            sys.exit("there is no helm")
        print(found_helm)  # noqa: T201
        sys.exit()
    try:
        provide(os.environ)
        _compile_helm(os.environ)
    except (MissingProgramsError, subprocess.SubprocessError) as problem:
        sys.exit(str(problem))
