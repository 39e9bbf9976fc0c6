"""The tidiness check finds what it is there for, and nothing else."""

import pytest

from scripts import tidy


def function_of(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


def test_the_repository_is_tidy() -> None:
    assert tidy.main() == 0


def test_a_function_of_seventy_lines_passes_and_one_of_seventy_one_does_not() -> None:
    assert not tidy.complaints({"tests/a.py": function_of(70)})
    assert tidy.complaints({"tests/a.py": function_of(71)}) == ["tests/a.py:1: f has 71 lines, at most 70 are allowed"]


def test_a_method_inside_a_class_is_measured_without_its_decorators() -> None:
    source = "class A:\n    @staticmethod\n    def g():\n        pass\n"
    assert [(it.name, it.line, it.lines) for it in tidy.functions("a.py", source)] == [("g", 3, 2)]


@pytest.mark.parametrize("folder", ["service", "consumers", "bench"])
def test_a_long_file_fails_wherever_files_are_measured(folder: str) -> None:
    text = "x = 1\n" * 401
    assert not tidy.complaints({"tests/a.py": text})
    path = f"{folder}/a.py"
    assert tidy.complaints({path: text}) == [f"{path}:1: the file has 401 lines, at most 400 are allowed"]


def test_one_long_function_in_ten_passes_and_two_do_not() -> None:
    short, long = function_of(5), function_of(40)
    assert not tidy.complaints({"service/a.py": short * 9 + long})
    (complaint,) = tidy.complaints({"service/a.py": short * 8 + long * 2})
    assert "one function in ten has 40 lines or more" in complaint


@pytest.mark.parametrize(
    "line",
    [
        "see https://" + "pypi" + ".org/project/redis",
        "https://files." + "python" + "hosted" + ".org/packages/x",
        "repo1." + "maven" + ".org",
        "pip install --extra-" + "index-url=x y",
        "cd /" + "home/ada/dropgate",
        'open("/' + 'Users/ada/notes")',
        "ls /" + "root/work",
        "# TO" + "DO: later",
        "FIX" + "ME",
    ],
)
def test_a_line_that_belongs_to_one_machine_or_is_undone_is_found(line: str) -> None:
    assert len(tidy.complaints({"docs/a.md": line})) == 1


@pytest.mark.parametrize(
    "line",
    [
        "https://example.com/home/page",
        "GET /v1/home",
        "$HOME/.cache and ~/root/x",
        "the root of the tree, /rooted",
        "--no-emit-index-url",
        "https://www.rfc-editor.org/rfc/rfc9457",
        "todo lists are for others",
    ],
)
def test_an_innocent_line_passes(line: str) -> None:
    assert not tidy.complaints({"docs/a.md": line})


@pytest.mark.parametrize("line", ["a @ https://example.com/a.whl", "-e ./a", "/wheels/a.whl", "file:a"])
def test_a_lock_file_has_no_address_and_no_path(line: str) -> None:
    assert tidy.complaints({"requirements/base.lock": line})
    pinned = "a==1 ; python_version < '3.12' \\\n    --hash=sha256:0"
    assert not tidy.complaints({"requirements/base.lock": pinned})
