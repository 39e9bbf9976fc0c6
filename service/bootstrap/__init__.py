"""The only wiring: settings to adapters, adapters to use cases, use cases to the parts of a process."""

from service.bootstrap.operator import (
    OperatorServices,
    check_topics,
    create_key,
    create_topics,
    list_keys,
    migrate,
    operator,
    revoke_key,
    schema_problem,
)
from service.bootstrap.process import Part, Running, run

__all__ = [
    "OperatorServices",
    "Part",
    "Running",
    "check_topics",
    "create_key",
    "create_topics",
    "list_keys",
    "migrate",
    "operator",
    "revoke_key",
    "run",
    "schema_problem",
]
