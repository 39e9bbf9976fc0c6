"""Column types that mean the same on SQLite, MySQL 8 and MariaDB.

Ids are compared as bytes everywhere: no case or accent folding, and a trailing space is a difference. On MySQL no
VARCHAR does that on both servers: `utf8mb4_bin` pads with spaces, `utf8mb4_0900_bin` exists on MySQL 8 alone and
`utf8mb4_nopad_bin` on MariaDB alone. So an id is a VARBINARY that holds UTF-8, decoded here; SQLite's default collation
(BINARY, no padding) is right as it is. A DBA reads such columns with `mysql --skip-binary-as-hex`.

Values are sent as text: the connection's character set is utf8mb4, so the server takes their UTF-8 bytes. (As bytes
they would not get there: aiomysql 0.3 cannot escape bytes with PyMySQL 1.2.)
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator, TypeEngine

MYSQL_NAMES = ("mysql", "mariadb")

SALE_ID_BYTES = 48
RESERVATION_ID_BYTES = 96
BUYER_ID_BYTES = 512
"""A storefront's own id: 128 characters of any kind."""
NAME_BYTES = 255


class _Varbinary(mysql.VARBINARY):
    """VARBINARY whose values go to the driver as they are."""

    def bind_processor(self, dialect: Dialect) -> None:  # noqa: ARG002
        return None

    def result_processor(self, dialect: Dialect, coltype: object) -> None:  # noqa: ARG002
        return None


class Bytewise(TypeDecorator[str]):
    """Text of at most `length` bytes that is equal only to the same bytes."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        on_mysql = dialect.name in MYSQL_NAMES
        column: TypeEngine[Any] = _Varbinary(self.length) if on_mysql else String(self.length)
        return dialect.type_descriptor(column)

    def process_result_value(self, value: str | bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return value.decode() if isinstance(value, bytes) else value


def word(length: int = 24) -> TypeEngine[str]:
    """A word of ours: a state, a reason, a currency. ASCII, readable in any client, compared by its bytes."""
    ascii_word = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return String(length).with_variant(ascii_word, *MYSQL_NAMES)


def json_text() -> TypeEngine[str]:
    """JSON as text: it is never searched, and comes back byte for byte."""
    return Text().with_variant(mysql.MEDIUMTEXT(), *MYSQL_NAMES)


def sequence() -> TypeEngine[int]:
    """A row number that the database gives. SQLite numbers only an INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")
