"""The container image: what it is built from, and that what it starts can be started.

No engine is needed: the wheel is built from the files that the Dockerfile copies, put into an
environment of its own, and started by the image's entry point.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_USAGE
from lean_sandbox.version import __version__
from tests.manifests.files import ROOT as MANIFESTS
from tests.model.crds.definitions import generate
from tests.support.patience import PATIENCE_S

ROOT = MANIFESTS.parent
TEXT = (MANIFESTS / "image/Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in TEXT.replace("\\\n", "").splitlines()
    if line and not line.startswith("#")
]
_FIRST, _SECOND = (at for at, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM")
BUILD = INSTRUCTIONS[_FIRST:_SECOND]
LAST = INSTRUCTIONS[_SECOND:]
ENVIRONMENT = "/opt/lean-sandbox"
# What the builder is told of the commit, which it does not see.
BUILT_FILE = "lean_sandbox/built.txt"
BUILT = {"REVISION": "0123456789ab", "SOURCE_DATE_EPOCH": "1700000000"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def values(stage: list[tuple[str, ...]], word: str) -> list[str]:
    """Return what follows an instruction, for each time that it stands in a stage."""
    return [rest[0] for first, *rest in stage if first == word]


def copied() -> list[str]:
    """Return what the build copies out of the project."""
    return [source for line in values(BUILD, "COPY") for source in line.split()[:-1]]


# -- the Dockerfile --------------------------------------------------------------------------------


def test_the_base_is_a_supported_python_and_the_last_stage_builds_nothing() -> None:
    """The base has a digest; the last stage is empty but for what the first has put together."""
    argument, *built = (rest for word, rest in INSTRUCTIONS if word == "ARG")
    assert built == list(BUILT)
    match = re.fullmatch(r"PYTHON=(\d+\.\d+)-slim-\w+@sha256:[0-9a-f]{64}", argument)
    assert match is not None
    assert f"Programming Language :: Python :: {match[1]}" in PROJECT["project"]["classifiers"]
    assert values(BUILD, "FROM") == ["python:${PYTHON} AS build"]
    assert values(LAST, "FROM") == ["scratch"]
    assert values(LAST, "RUN") == []
    assert values(LAST, "COPY") == ["--from=build /image /"]


def test_the_user_is_a_number_other_than_root() -> None:
    """A name cannot be checked by runAsNonRoot."""
    (user,) = values(LAST, "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    """Nothing that the build copies is kept back by .dockerignore, and nothing else reaches it."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    wanted = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert wanted == set(copied())
    for source in wanted:
        assert (ROOT / source).exists(), source
    assert not [rule for rule in rules[1:] if not rule.startswith("!") and fnmatch("x.py", rule)]


# -- what it installs ------------------------------------------------------------------------------


def dependencies() -> dict[str, metadata.Distribution]:
    """Return the distributions that the controller needs, by name."""
    found: dict[str, metadata.Distribution] = {}
    wanted = [Requirement(text) for text in PROJECT["dependency-groups"]["image"]]
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        found[name] = metadata.distribution(name)
        theirs = (Requirement(text) for text in found[name].requires or ())
        wanted += [
            need
            for need in theirs
            if need.marker is None
            or any(need.marker.evaluate({"extra": extra}) for extra in ("", *one.extras))
        ]
    return found


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Return the version of each distribution that a lock names, and how many hashes it has."""
    text = (ROOT / ".ci/locks" / name).read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "-r "))]
    found: dict[str, tuple[str, int]] = {}
    for line in lines:
        match = re.match(r"([\w.-]+)==([\w.]+)\s", line)
        assert match is not None, line
        hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}(?!\S)", line)
        found[canonicalize_name(match[1])] = match[2], len(hashes)
    return found


def test_everything_that_the_image_installs_is_locked() -> None:
    """Each dependency, theirs, and what builds the wheel; nothing is fetched but by the lock."""
    assert set(locked("image.txt")) == set(dependencies()) | {canonicalize_name("setuptools")}
    steps = [step.split() for run in values(BUILD, "RUN") for step in run.split("&&")]
    (fetch,) = (step for step in steps if step[:2] == ["pip", "download"])
    assert "--require-hashes" in fetch
    assert fetch[-2:] == ["-r", ".ci/locks/image.txt"]
    others = [step for step in steps if "pip" in step and step != fetch]
    assert len(others) == 2
    assert all({"--no-index", "--no-deps"} <= set(step) for step in others)


def test_the_image_holds_the_dependencies_without_lightkube() -> None:
    """Ten packages are for users of the Python package alone: the controller imports none."""
    whole = PROJECT["project"]["dependencies"]
    (client,) = set(whole) - set(PROJECT["dependency-groups"]["image"])
    assert Requirement(client).name == "lightkube"
    assert set(PROJECT["dependency-groups"]["image"]) < set(whole)
    assert not {"lightkube", "httpx2"} & set(locked("image.txt"))
    assert {"lightkube", "httpx2"} <= set(locked("test.txt"))


@pytest.mark.parametrize("name", ["image.txt", "test.txt", "tools.txt"])
def test_every_version_is_locked_by_the_hash_of_its_files(name: str) -> None:
    """A file that was put in the place of another, at the index or on the way, is refused."""
    assert locked(name)
    assert not [one for one, (_, hashes) in locked(name).items() if not hashes]


def test_the_tests_run_with_what_the_image_holds() -> None:
    """The lock of the tests includes that of the image, and names no version a second time."""
    assert "\n-r image.txt\n" in (ROOT / ".ci/locks/test.txt").read_text(encoding="utf-8")
    assert not set(locked("image.txt")) & set(locked("test.txt"))


def test_what_the_image_installs_is_small() -> None:
    """Dependencies as they are installed, without compiled code: 6.2 MiB when this was written."""
    total = sum(
        file.size or 0
        for found in dependencies().values()
        for file in found.files or ()
        if "__pycache__" not in file.parts
    )
    assert total < 8 * 2**20


# -- what it starts --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """What the image consists of, without its base."""

    source: Path
    wheel: Path
    environment: Path

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the entry point with arguments instead of its own, anywhere but in the project."""
        (text,) = values(LAST, "ENTRYPOINT")
        *command, last = json.loads(text)
        assert last == "run"
        return self.run(*self.own(command), *arguments)

    def own(self, words: list[str]) -> list[str]:
        """Return the words of a command of the image with its paths as they are here."""
        return [word.replace(ENVIRONMENT, str(self.environment)) for word in words]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the image would: nothing of this process's environment is left."""
        return subprocess.run(  # noqa: S603 -- commands of this file
            command,
            cwd=self.environment,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the wheel as the Dockerfile does, and install it in an environment of its own."""
    folder = tmp_path_factory.mktemp("image")
    for source in copied():
        whole = ROOT / source
        target = folder / "src" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if whole.is_dir():
            shutil.copytree(whole, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(whole, target)
    # The network is left alone: what builds it is installed with the tests.
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    _pip("wheel", *offline, "--wheel-dir", str(folder), str(folder / "src"))
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = str(environment / "bin/python")
    _pip("--python", python, "install", "--no-deps", "--no-index", str(wheel))
    # Added last, so what is installed there as a project under work is not found.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Image(folder / "src", wheel, environment)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--isolated", "--quiet", *arguments]
    environment = {"PATH": os.environ["PATH"], **BUILT}
    subprocess.run(command, check=True, timeout=PATIENCE_S, env=environment)  # noqa: S603 -- as above


def test_the_wheel_holds_the_program_and_nothing_else(image: Image) -> None:
    """Modules, type markers, definitions, data, the license; no tests, no manifests."""
    with zipfile.ZipFile(image.wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(
            f"lean_sandbox-{__version__}.dist-info/entry_points.txt"
        ).decode()
    packages = ("filters", "lean_sandbox")
    modules = {
        str(path.relative_to(image.source))
        for package in packages
        for path in (image.source / package).rglob("*.py")
    }
    markers = {f"{package}/py.typed" for package in packages}
    about = {name for name in names if ".dist-info/" in name}
    definitions = {f"lean_sandbox/crds/{name}" for name in generate()}
    data = {
        str(path.relative_to(image.source))
        for suffix in ("json.gz", "yaml")
        for path in (image.source / "lean_sandbox/local/data").glob(f"*.{suffix}")
    }
    assert data
    data.add("lean_sandbox/http/page.html")
    assert names - about == modules | markers | definitions | data | {BUILT_FILE}
    assert any(name.endswith("/LICENSE") for name in about)
    assert PROJECT["project"]["scripts"] == {"lean-sandbox": "lean_sandbox.__main__:main"}
    assert "lean-sandbox = lean_sandbox.__main__:main" in entry_points


def test_the_source_distribution_makes_the_same_wheel_and_holds_nothing_else(
    image: Image, tmp_path: Path
) -> None:
    """Sources of the wheel and what builds it; no tests, no pages, no warning on the way."""
    source = tmp_path / "source"
    shutil.copytree(image.source, source, ignore=shutil.ignore_patterns("*.egg-info", "build"))
    shutil.copy(ROOT / "MANIFEST.in", source)
    (source / "tests").mkdir()
    shutil.copy(ROOT / "tests/test_design.py", source / "tests")
    archive = _built("sdist", source, tmp_path)
    _extract(archive, tmp_path)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    about = {"LICENSE", "MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg", "setup.py"}
    with zipfile.ZipFile(image.wheel) as wheel:
        modules = {one for one in wheel.namelist() if ".dist-info/" not in one}
        contents = {one: wheel.read(one) for one in wheel.namelist()}
    found = {str(one.relative_to(unpacked)) for one in unpacked.rglob("*") if one.is_file()}
    assert {one for one in found if ".egg-info/" not in one} == (modules | about) - {BUILT_FILE}
    with zipfile.ZipFile(_built("wheel", unpacked, tmp_path)) as wheel:
        assert {one: wheel.read(one) for one in wheel.namelist()} == contents


def _extract(archive: Path, into: Path) -> None:
    """Write the files of an archive: ``extractall`` takes a filter only since Python 3.11.4."""
    with tarfile.open(archive) as packed:
        for member in packed:
            if (content := packed.extractfile(member)) is not None:
                target = into / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())


def _built(kind: str, source: Path, into: Path) -> Path:
    """Build a distribution by the backend that pyproject.toml names; a warning is an error."""
    build = f"from setuptools.build_meta import *; build_{kind}({str(into)!r})"
    command = [sys.executable, "-I", "-W", "error", "-c", build]
    environment = {**os.environ, **BUILT}
    subprocess.run(  # noqa: S603 -- as above
        command, check=True, timeout=PATIENCE_S, cwd=source, env=environment, capture_output=True
    )
    (found,) = into.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return found


def test_the_description_says_what_cannot_be_beside_it() -> None:
    """Its package `filters` is that of another distribution, too; and no link in it is relative."""
    text = PROJECT["project"]["readme"]["text"]
    assert "`filters`" in text
    assert not re.findall(r"\]\((?!https:)", text)
    assert {"authors", "classifiers", "keywords", "license", "urls"} <= PROJECT["project"].keys()


def test_the_entry_point_starts_in_an_environment_of_its_own(image: Image) -> None:
    """It prints version and help, loads itself from there, and writes no complaint."""
    version = image.start("version")
    first, second, *_ = version.stdout.splitlines()
    assert first == f"lean-sandbox, version v{__version__} (revision: {BUILT['REVISION']})"
    assert second.split()[-1] == "2023-11-14T22:13:20Z"
    assert version.stderr == ""
    usage = image.start("run", "--help")
    assert usage.returncode == 0
    assert "--leader-elect" in usage.stdout
    assert "--health-probe-bind-address" in usage.stdout
    where = image.run(
        str(image.environment / "bin/python"),
        "-I",
        "-c",
        "import lean_sandbox, filters; print(lean_sandbox.__file__, filters.__file__)",
    )
    assert all(path.startswith(str(image.environment)) for path in where.stdout.split())
    assert len(where.stdout.split()) == 2


def test_the_arguments_of_the_deployment_get_as_far_as_the_cluster(image: Image) -> None:
    """Started as in a Pod but without a cluster, it refuses that, and not its arguments."""
    refused = image.start("run", "--leader-elect=true", "--extensions")
    assert refused.returncode == EXIT_CONFIG
    assert "kubeconfig" in refused.stderr
    assert image.start("run", "--webhook-port=9443").returncode == EXIT_USAGE


def test_bytecode_is_made_after_the_last_change_of_a_files_time() -> None:
    """Times of files in a layer are whole seconds, and bytecode is bound to that of its source."""
    install, compiled, _ = (text for text in values(BUILD, "RUN") if ENVIRONMENT in text)
    assert "--no-compile" in install
    assert install.endswith(
        f"find {ENVIRONMENT} /usr/local/lib -exec touch -h -d @1700000000 {{}} +"
    )
    assert "pycache_prefix" in compiled


def test_whatever_a_start_imports_is_in_the_image_as_bytecode(image: Image) -> None:
    """Nobody may write there once it runs; made a second time it is the same, byte for byte."""
    bytecode = image.environment / "bytecode"
    shutil.rmtree(bytecode, ignore_errors=True)
    (command,) = (text for text in values(BUILD, "RUN") if "pycache_prefix" in text)
    compiled = image.run(*image.own(shlex.split(command)))
    assert (compiled.returncode, compiled.stderr) == (0, "")
    before = set(bytecode.rglob("*.pyc"))
    assert image.start("run", "--leader-elect=true", "--extensions").returncode == EXIT_CONFIG
    assert set(bytecode.rglob("*.pyc")) == before
    assert any("lean_sandbox" in path.parts for path in before)
    assert any(path.parent.name == "asyncio" for path in before)
    made = {path: path.read_bytes() for path in before}
    shutil.rmtree(bytecode)
    image.run(*image.own(shlex.split(command)))
    assert {path: path.read_bytes() for path in bytecode.rglob("*.pyc")} == made
