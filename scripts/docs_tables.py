"""The tables of docs/operations.md, made from where the code declares metrics, log actions and settings.

    python scripts/docs_tables.py            prints them
    python scripts/docs_tables.py --write    puts them into docs/operations.md, between their markers

tests/unit/test_docs_tables.py fails where the page has other tables than these.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase
from pydantic import SecretStr
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from service.observability import metrics  # noqa: E402 - the repository must be on the path first
from service.observability.actions import Action  # noqa: E402
from service.settings import Settings  # noqa: E402

PAGE = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- table: {} -->", "<!-- end of table -->"
BLOCK = re.compile(r"<!-- table: (\w+) -->\n(.*?)" + re.escape(END), re.DOTALL)

BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}

MEANT = {
    "topic_prefix": "The first part of the names of all topics and groups.",
    "host": "The address that the API listens on.",
    "redis_timeout_s": "How long a call waits for Redis. A reserve call that takes longer is in doubt.",
    "redis_connect_timeout_s": "How long a connection to Redis may take.",
    "redis_pool_max": "Connections to Redis of one process.",
    "sql_connect_timeout_s": "How long a connection to the database may take.",
    "transaction_check_interval_s": "Embedded broker: time between two check-backs of one half message.",
    "transaction_check_max": "Embedded broker: after so many check-backs in vain a half message is set aside.",
    "payment_tolerance_s": "How far the time of a payment's signature may be from this process's clock.",
    "log_json": "JSON lines. Where it is not set: JSON unless standard error is a terminal.",
    "log_level": "`DEBUG`, `INFO`, `WARNING` or `ERROR`: what is below is not written.",
}
"""For settings whose declaration says nothing beyond its name. A docstring in settings.py goes before these."""


def metrics_table() -> str:
    declared = [value for value in vars(metrics).values() if isinstance(value, MetricWrapperBase)]
    return table(("metric", "kind", "labels", "meaning"), sorted(_metric(metric) for metric in declared))


def _metric(metric: MetricWrapperBase) -> tuple[str, ...]:
    described = next(iter(metric.describe()))
    suffix = "_total" if described.type == "counter" else ""
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    return f"`{described.name}{suffix}`", described.type, labels, described.documentation


def actions_table() -> str:
    return table(("action", "meaning"), [(f"`{action.value}`", action.meaning) for action in sorted(Action)])


def settings_table() -> str:
    said = _docstrings()
    rows = [
        (f"`DROPGATE_{name.upper()}`", _default(field), _allowed(field), said.get(name) or MEANT.get(name, ""))
        for name, field in Settings.model_fields.items()
    ]
    return table(("setting", "default", "allowed", "meaning"), rows)


def _docstrings() -> dict[str, str]:
    """The string that stands under a field, as Settings' own source has it."""
    body = next(node for node in ast.parse(inspect.getsource(Settings)).body if isinstance(node, ast.ClassDef)).body
    found = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = value.value
    return found


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value == () or isinstance(value, SecretStr):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _allowed(field: FieldInfo) -> str:
    found = [
        f"{sign} {getattr(rule, name):,}"
        for rule in field.metadata
        for name, sign in BOUNDS.items()
        if hasattr(rule, name)
    ]
    return ", ".join(found)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(
        f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in line)} |\n" for line in lines
    )


TABLES = {"metrics": metrics_table, "actions": actions_table, "settings": settings_table}


def written(page: str) -> str:
    """The page with each of its tables as the code has it now."""
    return BLOCK.sub(lambda block: f"{BEGIN.format(block[1])}\n{TABLES[block[1]]()}{END}", page)


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--write"]:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    for name, make in TABLES.items():
        print(f"{BEGIN.format(name)}\n{make()}{END}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
