"""The drivers' errors in the domain's words: what is run again, what is an outage, what is our own fault."""

from __future__ import annotations

import sqlite3
import traceback

import pytest
from pymysql import err
from sqlalchemy import exc

from service.adapters.sql import transactions
from service.domain.errors import DropgateError, InvariantBroken, RowRefused, StoreUnavailable


def _sqlite(code: int, message: str = "database is locked") -> exc.DBAPIError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return exc.OperationalError("SELECT", {}, error)


def _mysql(code: int, kind: type[exc.DBAPIError] = exc.OperationalError) -> exc.DBAPIError:
    return kind("SELECT", {}, err.OperationalError(code, "from the server"))


BUSY_SNAPSHOT = 517
"""SQLITE_BUSY_SNAPSHOT: the extended codes of SQLITE_BUSY (5) count too."""


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (_sqlite(5), True),
        (_sqlite(BUSY_SNAPSHOT), True),
        (_sqlite(6), True),
        (_sqlite(13, "database or disk is full"), False),
        (_mysql(1213), True),
        (_mysql(1205), True),
        (_mysql(1020), True),
        (_mysql(2013), False),
        (_mysql(1062, exc.IntegrityError), False),
    ],
)
def test_what_is_only_another_transaction_in_the_way_is_run_again(error: exc.DBAPIError, again: bool) -> None:
    assert transactions.is_contention(error) is again


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (_mysql(2013), StoreUnavailable),
        (_mysql(2003), StoreUnavailable),
        (_mysql(1205), StoreUnavailable),
        (_sqlite(13, "database or disk is full"), StoreUnavailable),
        (_mysql(1062, exc.IntegrityError), InvariantBroken),
        (_mysql(3819), InvariantBroken),
        (_mysql(1406, exc.DataError), RowRefused),
        (_mysql(1146, exc.ProgrammingError), RowRefused),
    ],
)
def test_each_error_has_one_name(error: exc.DBAPIError, named: type[DropgateError]) -> None:
    assert type(transactions.named(error)) is named


def test_what_a_buyer_sent_is_not_in_the_message() -> None:
    error = exc.DataError("INSERT", {"buyer_id": "anna@example.com"}, err.DataError(1406, "Data too long"))
    assert "anna" not in str(transactions.named(error))


BUYERS_DATA = {"buyer_id": "anna@example.com"}


@pytest.mark.parametrize(
    "error",
    [
        err.IntegrityError(1062, "Duplicate entry 'anna@example.com' for key 'PRIMARY'"),
        err.DataError(1366, "Incorrect string value: 'anna@example.com' for column"),
        err.ProgrammingError(1064, "You have an error in your SQL syntax near 'anna@example.com'"),
        err.OperationalError(1690, "BIGINT value is out of range in '(anna@example.com + 1)'"),
        err.MySQLError("anna@example.com"),
    ],
)
async def test_what_the_server_quotes_of_it_gets_into_no_message_and_no_traceback(error: err.MySQLError) -> None:
    code = error.args[0] if len(error.args) > 1 else "MySQLError"
    with pytest.raises(DropgateError) as caught:
        async with transactions._bounded(1):
            raise exc.OperationalError("INSERT", BUYERS_DATA, error)
    trace = "".join(traceback.format_exception(caught.value))
    assert "anna" not in trace
    assert str(code) in trace, "and an operator can look it up"


def test_what_is_wrong_with_the_server_is_said_in_its_words() -> None:
    refused = exc.OperationalError("SELECT", {}, err.OperationalError(1045, "Access denied for user 'dropgate'"))
    assert "1045 Access denied for user 'dropgate'" in str(transactions.named(refused))
    gone = exc.OperationalError("SELECT", {}, err.OperationalError(2003, "Can't connect to MySQL server on 'db'"))
    assert "Can't connect to MySQL server on 'db'" in str(transactions.named(gone))
