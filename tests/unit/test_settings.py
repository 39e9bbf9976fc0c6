"""What one setting has to do with another, and what is refused before anything starts."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from service.adapters.system_clock import SystemClock
from service.bootstrap import migrate
from service.bootstrap.adapters import open_database, open_transport
from service.domain.errors import SettingRefused
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


GOOD, BETTER = "g" * 32, "b" * 43


@pytest.mark.parametrize("given", [GOOD, f"{GOOD},{BETTER}", f" {GOOD} , {BETTER} ", [GOOD, BETTER], (GOOD,), ""])
def test_secrets_of_32_bytes_are_taken_from_text_and_from_a_list(given: object) -> None:
    found = [secret.get_secret_value() for secret in Settings(payment_secrets=given).payment_secrets]  # type: ignore[arg-type]
    assert found == [secret for secret in (GOOD, BETTER) if secret in given]  # type: ignore[operator]


@pytest.mark.parametrize(
    "given", ["x", "g" * 31, f"{GOOD},", f",{GOOD}", f"{GOOD},,{BETTER}", [""], [GOOD, ""], [GOOD, "x"]]
)
def test_a_secret_that_can_be_guessed_is_refused_and_not_shown(given: object) -> None:
    """An empty one most often comes of a variable that is not set: anybody could sign with it."""
    with pytest.raises(ValidationError, match="needs 32") as refused:
        Settings(payment_secrets=given)  # type: ignore[arg-type]
    assert GOOD not in str(refused.value.errors()[0]["msg"])


@pytest.mark.parametrize("given", ["", "short", "g" * 31])
def test_a_tokens_secret_that_can_be_guessed_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="needs 32"):
        Settings(jwt_secret=SecretStr(given))
    assert Settings(jwt_secret=SecretStr(GOOD)).jwt_secret is not None


def test_a_list_in_the_file_is_held_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dropgate.toml").write_text(f'payment_secrets = ["{GOOD}", ""]\n')
    with pytest.raises(ValidationError, match="needs 32"):
        Settings()
    (tmp_path / "dropgate.toml").write_text(f'payment_secrets = ["{GOOD}", "{BETTER}"]\n')
    assert len(Settings().payment_secrets) == 2


# --- TLS to the database ----------------------------------------------------------------------------------------------


def test_the_files_of_tls_without_tls_are_a_mistake() -> None:
    with pytest.raises(ValidationError, match="database_tls is not"):
        Settings(database_tls_ca=Path("ca.pem"))
    assert Settings(database_tls=True).database_tls_verify


async def test_tls_reaches_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(database_url="mysql://dropgate:secret@db.example/dropgate", database_tls=True)
    database = open_database(settings)
    await database.close()
    tls = database.options.tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    careless = open_database(settings.model_copy(update={"database_tls_verify": False}))
    await careless.close()
    assert careless.options.tls is not None
    assert careless.options.tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"database_url": "mysql://db.example/dropgate", "database_tls_ca": Path("nowhere.pem")}, "cannot be used"),
        ({"database_url": "embedded"}, "nothing to encrypt"),
    ],
)
def test_tls_that_cannot_be_is_a_refused_setting(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(SettingRefused, match=problem):
        open_database(Settings(home=tmp_path, database_tls=True, **changes))


# --- the embedded files -----------------------------------------------------------------------------------------------


async def test_the_folder_and_its_files_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    home = tmp_path / "new"
    before = os.umask(0)
    try:
        settings = Settings(home=home)
        await migrate(settings)
        transport = open_transport(settings, SystemClock())
        await transport.start()
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())}
        await transport.close()
    finally:
        os.umask(before)
    assert found.pop("new") == 0o700
    assert {"dropgate.db", "broker.db", "broker.db-wal"} <= found.keys()
    assert set(found.values()) == {0o600}, found


async def test_files_that_others_could_read_are_closed_to_them(tmp_path: Path) -> None:
    for name in ("dropgate.db", "broker.db"):
        (tmp_path / name).touch(mode=0o644)
    settings = Settings(home=tmp_path)
    open_transport(settings, SystemClock())
    await open_database(settings).close()
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("dropgate.db", "broker.db")} == {0o600}


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_the_margin_stays_what_the_operations_page_says() -> None:
    assert Settings().not_found_margin_s == 30
    with pytest.raises(ValidationError):
        Settings(sql_timeout_s=20.1)
