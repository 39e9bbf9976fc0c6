"""The suites are no test modules by name: pytest must be told to show the values in their assertions, too."""

import pytest

pytest.register_assert_rewrite("tests.contract.messaging", "tests.contract.messaging_stage")
