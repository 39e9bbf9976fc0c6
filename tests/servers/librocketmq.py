"""librocketmq for the tests: a third party's build, out of a published package, beside rocketmq-client-python.

Who runs Dropgate installs the official build as a system library. For the tests that would change the machine; the
package looks first into its own folder, so there a link is enough, and it needs neither ldconfig nor LD_LIBRARY_PATH.
"""

from __future__ import annotations

import platform
import sys
import tarfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from service.adapters.rocketmq.packages import NATIVE
from tests.servers.process import ServerFailed

PINNED = Path(__file__).with_name("librocketmq.txt")
LIBRARY = "librocketmq.so"
BUILT_FOR = "x86_64"

Run = Callable[[Sequence[str]], None]


def install(cache: Path, run: Run) -> None:
    """Into `cache`, and linked to from the client package of this environment. ServerFailed says what is amiss."""
    if (sys.platform, platform.machine()) != ("linux", BUILT_FOR):
        raise ServerFailed(f"this build of librocketmq is for Linux on {BUILT_FOR}, and this is {platform.platform()}")
    library = cache / f"librocketmq-{_version()}" / LIBRARY
    if not library.is_file():
        _fetch(library, run)
    link = _package() / LIBRARY
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(library)


def _version() -> str:
    (line,) = (it for it in PINNED.read_text(encoding="utf-8").splitlines() if not it.startswith("#"))
    return line.partition("==")[2].partition(" ")[0]


def _package() -> Path:
    try:
        return Path(str(metadata.distribution(NATIVE.name).locate_file("rocketmq")))
    except metadata.PackageNotFoundError:
        raise ServerFailed(
            f"{NATIVE.name} is not in this environment: `make test-rocketmq4` makes one with it"
        ) from None


def _fetch(library: Path, run: Run) -> None:
    """Into a draft first: a library with the final name is complete."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=library.parent) as folder:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "download"]
        run([*pip, "--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", str(PINNED), "-d", folder])
        (archive,) = Path(folder).glob("*.tar.gz")
        draft = Path(folder) / LIBRARY
        draft.write_bytes(_member(archive))
        draft.rename(library)


def _member(archive: Path) -> bytes:
    with tarfile.open(archive) as tar:
        (member,) = (it for it in tar.getmembers() if Path(it.name).name == LIBRARY)
        found = tar.extractfile(member)
        if found is None:
            raise ServerFailed(f"{archive.name} has no {LIBRARY}")
        return found.read()
