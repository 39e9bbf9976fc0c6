"""docs/operations.md lists every metric, log action and setting, as the code declares them."""

from __future__ import annotations

import pytest

from scripts import docs_tables
from service.observability.actions import Action
from service.settings import Settings

REMEDY = "run: python scripts/docs_tables.py --write"


@pytest.mark.parametrize("name", sorted(docs_tables.TABLES))
def test_the_page_has_exactly_the_table_that_the_code_makes(name):
    blocks = {block[1]: block[2] for block in docs_tables.BLOCK.finditer(docs_tables.PAGE.read_text(encoding="utf-8"))}
    assert blocks[name] == docs_tables.TABLES[name](), REMEDY


def test_every_metric_is_listed_under_the_name_that_prometheus_shows():
    shown = docs_tables.metrics_table()
    assert "| `dropgate_dead_letters_total` | counter | `group` |" in shown
    assert "| `dropgate_leader` | gauge | `lease` |" in shown
    assert "_created" not in shown


def test_every_action_is_listed_with_its_meaning():
    assert docs_tables.actions_table().count("\n") == len(Action) + 2
    assert f"| `part_died` | {Action.PART_DIED.meaning} |" in docs_tables.actions_table()


def test_every_setting_is_listed_with_a_meaning():
    lines = docs_tables.settings_table().splitlines()[2:]
    assert len(lines) == len(Settings.model_fields)
    assert [line for line in lines if line.endswith("|  |")] == [], "say what it means: below it in settings.py"


def test_no_secret_is_shown_and_a_bound_is():
    shown = docs_tables.settings_table()
    assert "| `DROPGATE_JWT_SECRET` | none |" in shown
    assert "| `DROPGATE_PORT` | `8080` | ≥ 0, ≤ 65,535 |" in shown


def test_a_page_with_old_tables_is_written_anew_and_the_rest_is_left_alone():
    page = "before\n<!-- table: actions -->\nold\n<!-- end of table -->\nafter\n"
    written = docs_tables.written(page)
    assert written == f"before\n<!-- table: actions -->\n{docs_tables.actions_table()}<!-- end of table -->\nafter\n"
    assert docs_tables.written(written) == written
