"""What goes wrong is one sentence with the remedy on standard error, and an exit code."""

from __future__ import annotations

import errno
import sys

import pytest

from service.cli.output import explain
from service.domain.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    SettingRefused,
    StockUnavailable,
    Unauthenticated,
)

CREATE = ("sale", "create", "drop", "--sku", "tee", "--stock", "100", "--price", "4900")


def one_sentence(result) -> str:
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr.strip()


def test_an_unknown_sale_is_named(dropgate):
    result = dropgate("sale", "warm", "nothing-here")
    assert result.exit_code == 1
    assert one_sentence(result) == "dropgate: There is no sale nothing-here."


def test_a_conflict_says_what_forbids_it(dropgate):
    dropgate(*CREATE)
    result = dropgate(*CREATE)
    assert result.exit_code == 1
    assert one_sentence(result).startswith("dropgate: The id is another sale's")


def test_an_old_schema_is_refused_with_the_remedy(dropgate, bootstrap):
    bootstrap.problem = "The database is at revision 0001, this release needs 0002."
    for command in (("sale", "show"), ("audit",), ("serve",), ("consume", "order"), ("keeper",)):
        result = dropgate(*command)
        assert result.exit_code == 1
        assert "dropgate migrate" in one_sentence(result)
    assert bootstrap.ran == []


@pytest.mark.parametrize(
    "args",
    [
        ("consume", "everything"),
        ("key", "create", "--role", "emperor"),
        ("sale", "warm", "Not A Sale"),
        ("sale", "show", "a.b"),
        (*CREATE, "--opens-at", "tomorrow"),
        (*CREATE, "--opens-at", "2030-01-31T12:00:00"),
        (*CREATE[:-1], "49.00"),
        (*CREATE[:-1], "4_900"),
        (*CREATE[:-1], "-1"),
        (*CREATE, "--limit", "0"),
        (*CREATE, "--payment-window", "86401"),
        ("sale", "stock", "drop"),
        ("sale", "stock", "drop", "--add", "1", "--remove", "1"),
        ("sale", "stock", "drop", "--add", "10.0"),
        ("demo", "--buyers", "1e3"),
        ("serve", "--port", "70000"),
        ("demo", "--buyers", "0"),
        ("no-such-command",),
    ],
)
def test_usage_errors_exit_with_2(dropgate, bootstrap, args):
    result = dropgate(*args)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert bootstrap.ran == []


def test_a_wrong_setting_is_named_without_its_value(dropgate, monkeypatch):
    monkeypatch.setenv("DROPGATE_BATCH_MAX", "secret-by-mistake")
    result = dropgate("migrate")
    assert result.exit_code == 2
    assert "DROPGATE_BATCH_MAX" in one_sentence(result)
    assert "secret-by-mistake" not in result.stderr


def test_an_option_that_is_wrong_is_named(dropgate):
    for option, value in (("--opens-at", "tomorrow"), ("--closes-at", "2030-01-31T12:00:00"), ("--price", "49.00")):
        assert f"'{option}'" in dropgate(*CREATE, option, value).stderr


def test_a_name_in_the_file_that_is_no_setting_is_named_as_it_stands_there(dropgate, tmp_path, monkeypatch):
    (tmp_path / "dropgate.toml").write_text("prot = 8081\nport = 99999\n")
    result = dropgate("migrate")
    assert result.exit_code == 2
    assert "prot in dropgate.toml: there is no such setting" in one_sentence(result)
    assert "port in dropgate.toml: " in result.stderr
    monkeypatch.setenv("DROPGATE_PORT", "99998")
    assert "DROPGATE_PORT: " in dropgate("migrate").stderr


@pytest.mark.parametrize(("name", "value"), [("DROPGATE_LOG_LEVEL", "chatty"), ("DROPGATE_BROKER_URL", "kafka://x")])
def test_a_setting_that_is_refused_later_ends_the_same_way(dropgate, bootstrap, monkeypatch, name, value):
    async def refuse(_settings, **_):
        raise SettingRefused("broker_url", "no transport in this release")

    monkeypatch.setattr(sys.modules["service.bootstrap"], "check_topics", refuse)
    monkeypatch.setenv(name, value)
    result = dropgate("topics", "check")
    assert result.exit_code == 2
    assert one_sentence(result).startswith(f"dropgate: A setting is wrong. {name}: ")


def test_a_file_that_the_system_refuses_is_named(dropgate, monkeypatch):
    async def refuse(_settings):
        raise PermissionError(errno.EACCES, "Permission denied", "there/dropgate.db")

    monkeypatch.setattr(sys.modules["service.bootstrap"], "migrate", refuse)
    result = dropgate("migrate")
    assert result.exit_code == 1
    assert one_sentence(result).startswith("dropgate: The system refuses there/dropgate.db: Permission denied.")


@pytest.mark.parametrize(
    "command",
    [("sale", "show"), ("audit",), ("key", "create", "--role", "viewer"), ("topics", "check"), ("serve",)],
)
def test_a_wrong_folder_is_said_and_not_made(dropgate, bootstrap, tmp_path, command):
    result = dropgate(*command, "--home", "typo")
    assert result.exit_code == 1
    assert "did you mean another --home?" in one_sentence(result)
    assert not (tmp_path / "typo").exists()
    assert bootstrap.calls == bootstrap.keys == bootstrap.ran == []


def test_a_broken_toml_file_is_named(dropgate, tmp_path):
    (tmp_path / "dropgate.toml").write_text("port = = 1\n")
    result = dropgate("migrate")
    assert result.exit_code == 2
    assert "dropgate.toml" in one_sentence(result)


def test_ctrl_c_ends_quietly_with_130(dropgate, bootstrap, monkeypatch):
    async def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap.sales, "list", interrupted)
    result = dropgate("sale", "show")
    assert result.exit_code == 130
    assert one_sentence(result) == ""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (NotFound("sale", "x"), "There is no sale x."),
        (InvalidRequest("stock", "must not be negative"), "stock: must not be negative"),
        (
            Conflict("sale_not_warm"),
            "The sale is not loaded: run `dropgate sale warm SALE`, or open it with --warm.",
        ),
        (Conflict("sale_is_settled"), "The sale is settled. Nothing can be done with it any more."),
        (
            StockUnavailable("Redis", "time-out"),
            "Redis is away: time-out. Nothing was written; try again once it is back.",
        ),
        (Unauthenticated(), "A valid bearer key is missing: create one with `dropgate key create`."),
    ],
)
def test_errors_are_explained_in_one_sentence(error, sentence):
    assert explain(error) == sentence
