"""What one setting has to do with another, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.bootstrap.adapters import open_database
from service.settings import CLOCKS_APART_S, Settings


@pytest.mark.parametrize("sql_timeout_s", [0.1, 5.0, 20.0])
async def test_a_404_waits_longer_than_any_transaction_lives_and_clocks_differ(
    sql_timeout_s: float, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, sql_timeout_s=sql_timeout_s)
    database = open_database(settings)
    longest_s = database.options.transaction_timeout_s
    await database.close()
    assert settings.not_found_margin_s >= longest_s + CLOCKS_APART_S


def test_the_margin_stays_what_the_operations_page_says() -> None:
    assert Settings().not_found_margin_s == 30
    with pytest.raises(ValidationError):
        Settings(sql_timeout_s=20.1)
