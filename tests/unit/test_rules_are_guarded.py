"""Every rule that the model shows to be needed has tests on the real code that notice if it is left out.

docs/model/guards.toml names them, so that whoever changes a rule finds them; docs/protocol.md shows them. These tests
hold the model's list, the names and the page together.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from scripts import rules_table

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("switch", sorted(rules_table.guards()))
def test_a_rule_has_the_tests_that_are_named_for_it(switch: str) -> None:
    for test in rules_table.guards()[switch]:
        path, _, name = test.partition("::")
        assert name in _tests_of(TESTS / path), f"{switch}: {path} has no {name}"


def test_every_rule_of_the_model_is_guarded_in_the_code() -> None:
    assert {switch for _, _, switch in rules_table.rules()} == set(rules_table.guards())


def test_the_page_shows_the_table_as_it_is() -> None:
    assert rules_table.PAGE.read_text() == rules_table.page(), "python scripts/rules_table.py --write"


def test_integrators_are_told_to_ask_get_before_they_believe_a_409() -> None:
    """The one rule that only a client can keep."""
    page = (rules_table.ROOT / "docs" / "integrate.md").read_text()
    assert "ask `GET` before you believe a 409" in page


@cache
def _tests_of(path: Path) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions))
