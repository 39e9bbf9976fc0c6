"""What the pages name exists: links, commands with their options, settings, HTTP calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from service.api.openapi import document
from service.api.routes import ROUTES
from service.cli.main import app
from service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES_WITH_CALLS = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("integrate.md", "topics.md", "operations.md")),
]

FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COMMAND = re.compile(r"(?<![\w./-])dropgate ([a-z][^\n|&#`]*(?:\|[a-z]+)*)")
SETTING = re.compile(r"\bDROPGATE_([A-Z0-9_]+)\b")
CALL = re.compile(
    r"(?:\b(GET|POST|PATCH|PUT|DELETE) )?(/(?:admin/)?v1/[\w{}./-]+|/(?:healthz|readyz|metrics|openapi\.json)\b)"
)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_of(text: str) -> list[str]:
    """Fenced blocks, with lines that go on joined, and spans."""
    blocks = [block[2].replace("\\\n", " ") for block in FENCED.finditer(text) if block[1] != "mermaid"]
    return blocks + [" ".join(span[2].split()) for span in SPAN.finditer(FENCED.sub("", text))]


def anchors_of(page: Path) -> set[str]:
    """As the forge makes them out of headings."""
    headings = HEADING.findall(FENCED.sub("", text_of(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_somewhere(page):
    broken = []
    for target in LINK.findall(FENCED.sub("", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors_of(found)):
            broken.append(target)
    assert broken == []


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words after `dropgate`. `topics create|check` stands for two commands."""
    for code in code_of(text_of(page)):
        for found in COMMAND.finditer(code):
            first, *rest = found[1].split()
            for alternative in (rest[0] if rest else "").split("|"):
                yield [first, *([alternative] if alternative else []), *rest[1:]]


def problem_with(words: list[str]) -> str | None:
    command = typer.main.get_command(app)
    while isinstance(command, TyperGroup) and words:
        if words[0] not in command.commands:
            return f"no command {words[0]}"
        command = command.commands[words[0]]
        words = words[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"no option {unknown}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_and_option_exists(page):
    problems = {" ".join(words): problem for words in commands_of(page) if (problem := problem_with(words))}
    assert problems == {}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_setting_exists(page):
    assert {name for name in SETTING.findall(text_of(page)) if name.lower() not in Settings.model_fields} == set()


def calls_of(page: Path) -> Iterator[tuple[str, str]]:
    for code in code_of(text_of(page)):
        # A value inside a path, as a template, a shell or an f-string has it, is one part of it.
        plain = re.sub(r"\{[^{}\n]*\}|\$\w+", "x", code)
        for method, path in CALL.findall(plain):
            yield method, path.rstrip(".")


@pytest.mark.parametrize("page", PAGES_WITH_CALLS, ids=named)
def test_every_http_call_is_in_the_openapi_document(page):
    paths = document(ROUTES)["paths"]
    assert isinstance(paths, dict)
    shapes = {re.compile(re.sub(r"\{\w+\}", "[^/]+", path)): operations for path, operations in paths.items()}
    unknown = []
    for method, path in calls_of(page):
        met = [operations for shape, operations in shapes.items() if shape.fullmatch(path)]
        if not any(not method or method.lower() in operations for operations in met):
            unknown.append(f"{method} {path}")
    assert unknown == []


def test_the_pages_are_read_at_all():
    integrate = ROOT / "docs" / "integrate.md"
    assert ["key", "create", "--role", "storefront"] in list(commands_of(integrate))
    assert ("POST", "/v1/payments") in set(calls_of(integrate))
    assert {"create", "check"} <= {
        words[1] for words in commands_of(ROOT / "docs" / "topics.md") if words[0] == "topics"
    }
    assert problem_with(["replicate"]) == "no command replicate"
    assert problem_with(["audit", "--fast"]) == "no option ['--fast']"
