"""Fails the build when the code outgrows its measure, or when a file carries what belongs to one machine.

Functions have at most 70 lines, files of `service`, `consumers` and `bench` at most 400, nine functions in ten of
these at most 25. No file names a registry host, a path of somebody's machine or work left undone; no lock file has
an address in it.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FUNCTION, MAX_P90, MAX_FILE = 70, 25, 400
MEASURED = ("service/", "consumers/", "bench/")
TEXT_HEAD = 8192

# Built from parts, so that this file does not contain what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("registry", "npmjs", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
    ]
]
REGISTRY = re.compile(
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, REGISTRY_HOSTS))})(?![\w-])"
    r"|(?<![\w-])--(?:extra-)?index-" + r"url\b|(?<![\w-])--find-" + r"links\b",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(
    r"(?<![\w.~}$/*-])(?:/(?:home|Users)/[\w.-]+|/" + r"root)(?=[/\s'\"`:;,)]|$)|\b[A-Z]:\\Users\\"
)
UNDONE = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b")
LOCK_ADDRESS = re.compile(r"\w+://|file:|\s@\s|(?:^|\s)(?:\.{1,2}/|/)\S|--(?:extra-)?index|--find")


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function and where it stands."""

    path: str
    line: int
    name: str
    lines: int


def functions(path: str, source: str) -> Iterator[Function]:
    """Yield every function of a module, nested ones and methods too; decorators do not count."""
    for node in ast.walk(ast.parse(source, filename=path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(path=path, line=node.lineno, name=node.name, lines=lines)


def p90(lengths: Iterable[int]) -> int:
    """Return the length that nine in ten do not exceed (nearest rank)."""
    ordered = sorted(lengths)
    return ordered[-(-len(ordered) * 9 // 10) - 1] if ordered else 0


def too_long(files: dict[str, str]) -> Iterator[str]:
    """Yield a complaint for each function and file over its measure, and for the whole."""
    measured: list[Function] = []
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        found = list(functions(path, text))
        for it in found:
            if it.lines > MAX_FUNCTION:
                where = f"{it.path}:{it.line}: {it.name}"
                yield f"{where} has {it.lines} lines, at most {MAX_FUNCTION} are allowed"
        if path.startswith(MEASURED):
            measured += found
            if (lines := len(text.splitlines())) > MAX_FILE:
                yield f"{path}:1: the file has {lines} lines, at most {MAX_FILE} are allowed"
    if (length := p90(it.lines for it in measured)) > MAX_P90:
        longest = ", ".join(
            f"{it.name} ({it.path}:{it.line}, {it.lines})" for it in sorted(measured, key=lambda it: -it.lines)[:5]
        )
        allowed = f"at most {MAX_P90} are allowed"
        yield f"one function in ten has {length} lines or more, {allowed}; longest: {longest}"


def out_of_place(path: str, text: str) -> Iterator[str]:
    """Yield a complaint for each line that names a registry, a person's folder or work left undone."""
    rules = [
        (REGISTRY, "names a package registry"),
        (MACHINE_PATH, "contains a path of somebody's machine"),
        (UNDONE, "leaves work undone: do it, or write it down as an issue"),
    ]
    if path.endswith(".lock"):
        rules.append((LOCK_ADDRESS, "contains an address or a local path: a lock file has names, versions, hashes"))
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, why in rules:
            if match := pattern.search(line):
                yield f"{path}:{number}: {match.group().strip()!r}: the line {why}"


def tracked(root: Path) -> dict[str, str]:
    """Read the text files that git tracks or would track, by their path in the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    files: dict[str, str] = {}
    for name in sorted(set(listing.stdout.split("\0")) - {""}):
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        raw = path.read_bytes()
        if b"\0" not in raw[:TEXT_HEAD]:
            files[name] = raw.decode("utf-8", errors="replace")
    return files


def complaints(files: dict[str, str]) -> list[str]:
    """Return all that is wrong with these files."""
    found = list(too_long(files))
    for path, text in files.items():
        found += out_of_place(path, text)
    return found


def main() -> int:
    """Check the repository; 0 when it is tidy."""
    if not (ROOT / ".git").exists():
        print("tidy: not a git work tree, nothing checked")
        return 0
    files = tracked(ROOT)
    found = complaints(files)
    for line in found:
        print(line, file=sys.stderr)
    print(f"tidy: {len(files)} files, {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
