"""What goes wrong is one sentence with the remedy on standard error, and an exit code."""

from __future__ import annotations

import pytest

from service.cli.output import explain
from service.domain.errors import Conflict, InvalidRequest, NotFound, StockUnavailable, Unauthenticated

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
    assert "sale exists" in one_sentence(result)


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
        (Conflict("sale_not_warm"), "The state forbids it now: sale not warm."),
        (
            StockUnavailable("Redis", "time-out"),
            "Redis is away: time-out. Nothing was written; try again once it is back.",
        ),
        (Unauthenticated(), "A valid bearer key is missing: create one with `dropgate key create`."),
    ],
)
def test_errors_are_explained_in_one_sentence(error, sentence):
    assert explain(error) == sentence
