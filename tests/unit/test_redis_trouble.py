"""What an error reply of Redis means: whether anything can have been done."""

from __future__ import annotations

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from service.adapters.redis import trouble
from service.domain.errors import StockRefused

SAID = "User anna has no permissions to run the 'zadd' command"
IN_SCRIPT = " script: 7a2253e796aa, on @user_script:1."


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (NoPermissionError(SAID, status_code="NOPERM"), True),
        (NoPermissionError(SAID + IN_SCRIPT, status_code="NOPERM"), False),
        (ResponseError(f"ACL failure in script: {SAID}{IN_SCRIPT}", status_code="ERR"), False),
        (ResponseError(f"command not allowed when used memory > 'maxmemory'.{IN_SCRIPT}", status_code="OOM"), True),
        (ResponseError(f"Unknown Redis command called from script{IN_SCRIPT}", status_code="ERR"), False),
    ],
)
def test_a_permission_that_a_script_misses_comes_after_what_it_has_written(
    error: ResponseError, is_refusal: bool
) -> None:
    """Whatever code a release has for it."""
    assert isinstance(trouble.refusal(error), StockRefused) == is_refusal
