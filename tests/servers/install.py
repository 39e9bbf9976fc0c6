"""What the servers need: Debian packages where they are missing, and RocketMQ's published jars in a folder of ours."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import librocketmq
from tests.servers.process import ServerFailed

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".servers"
"""Git-ignored; kept between runs."""
INSTALL = "python -m tests.servers install"

PACKAGES = {
    "java": "openjdk-17-jre-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "redis-server": "redis-server",
}
"""A program, and the Debian package that brings it."""
JDK = "jdk"
"""No server: what the bench's Java program is compiled by."""
NEEDS = {
    "redis": ("redis-server",),
    "mariadb": ("mariadbd", "mariadb-install-db"),
    "rocketmq": ("java", "mvn"),
    JDK: ("javac",),
}
"""A server, and the programs that it takes. Maven only brings the jars."""
LIBROCKETMQ = "librocketmq"
"""No server: what a client needs."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """RocketMQ's jars, as a pom pins them. Without the jar of `main` they are no broker."""

    pom: str
    main: str
    size: str

    @property
    def version(self) -> str:
        found = ET.parse(self.path).getroot().find(".//{*}rocketmq.version")
        assert found is not None
        assert found.text is not None
        return found.text

    @property
    def folder(self) -> Path:
        return CACHE / f"rocketmq-{self.version}"

    @property
    def path(self) -> Path:
        return Path(__file__).with_name(self.pom)


ROCKETMQ_5 = Release(pom="rocketmq-pom.xml", main="rocketmq-proxy", size="150 jars, 94 MB")
ROCKETMQ_4 = Release(pom="rocketmq4-pom.xml", main="rocketmq-broker", size="40 jars, 28 MB")
ROCKETMQ_4_SERVER = "rocketmq-4.9"
"""A second broker, for the tests of the native client: brought only where it is named."""
RELEASES = {"rocketmq": ROCKETMQ_5, ROCKETMQ_4_SERVER: ROCKETMQ_4}


def program(name: str) -> str:
    """Its path. ServerFailed: it is missing; says what to install."""
    found = _which(name)
    if found is None:
        raise ServerFailed(
            f"the tests need {name}, which is not on this machine: '{INSTALL}' as root installs it, "
            f"or 'apt-get install {PACKAGES[name]}'"
        )
    return found


def jars(release: Release = ROCKETMQ_5) -> Path:
    """The folder of RocketMQ's jars. ServerFailed: they are not there yet."""
    folder = release.folder
    if not folder.is_dir():
        name = next(name for name, it in RELEASES.items() if it == release)
        raise ServerFailed(
            f"RocketMQ's jars are not in {folder.relative_to(ROOT)}: '{INSTALL} --only {name}' brings them "
            f"({release.size})"
        )
    return folder


def install(servers: Sequence[str] = tuple(NEEDS)) -> None:
    """All that these servers miss, saying so first. Quick when nothing is missing."""
    with _alone():
        _install_packages(servers)
        for name, release in RELEASES.items():
            if name in servers and not release.folder.is_dir():
                _install_jars(release)
        if LIBROCKETMQ in servers:
            librocketmq.install(CACHE, _run)


def _which(name: str) -> str | None:
    """Debian puts servers where only root's PATH looks."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))


# --- packages ---------------------------------------------------------------------------------------------------------


def _install_packages(servers: Sequence[str]) -> None:
    missing = _missing(servers)
    if not missing:
        return
    packages = sorted(set(missing.values()))
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerFailed(
            f"the tests need {', '.join(sorted(missing))}, which are not on this machine. "
            f"On Debian or Ubuntu: 'apt-get install {' '.join(packages)}' as root"
        )
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-qq"]
    _run([*apt, "update"])
    _say(f"installing {', '.join(packages)}, which the real servers need{_size(packages)}")
    _run([*apt, "install", "-y", "--no-install-recommends", *packages])
    if still := _missing(servers):
        raise ServerFailed(f"installed {', '.join(packages)}, and yet there is no {', '.join(still)}")


def _size(packages: Sequence[str]) -> str:
    """In apt's words, with all that comes along."""
    command = ["apt-get", "install", "--assume-no", "--no-install-recommends", *packages]
    env = {**os.environ, "LC_ALL": "C"}
    asked = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = [it for it in asked.stdout.splitlines() if it.startswith(("Need to get", "After this operation"))]
    return f" ({' '.join(said)})" if said else ""


def _missing(servers: Sequence[str]) -> Mapping[str, str]:
    wanted = [name for server in servers for name in _programs(server)]
    return {name: PACKAGES[name] for name in wanted if _which(name) is None}


def _programs(server: str) -> Sequence[str]:
    release = RELEASES.get(server)
    if release is None:
        return NEEDS.get(server, ())
    return [name for name in NEEDS["rocketmq"] if name != "mvn" or not release.folder.is_dir()]


# --- jars -------------------------------------------------------------------------------------------------------------


def version() -> str:
    """Of the RocketMQ that is brought unless another is asked for."""
    return ROCKETMQ_5.version


def _install_jars(release: Release) -> None:
    """Into a draft first: a folder with the final name is complete."""
    draft = release.folder.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    folder = release.folder.relative_to(ROOT)
    _say(f"fetching RocketMQ {release.version} by Maven into {folder} ({release.size}, once)")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft}"]
    _run([program("mvn"), "--batch-mode", "--quiet", "--file", str(release.path), *goal])
    if not list(draft.glob(f"{release.main}-*.jar")):
        raise ServerFailed(f"Maven brought no {release.main} jar into {draft}")
    draft.rename(release.folder)


# --- both -------------------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    """Standard output is the settings' own."""
    print(f"==> {text}", file=sys.stderr, flush=True)


def _run(command: Sequence[str]) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise ServerFailed(f"'{' '.join(command)}' failed with {done.returncode}:\n{said}")


@contextmanager
def _alone() -> Iterator[None]:
    """One run at a time installs; another waits, and finds it done."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
