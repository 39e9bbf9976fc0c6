"""The table of docs/protocol.md: each rule, the switch that leaves it out of the model, and the tests that guard it.

python scripts/rules_table.py            prints it
python scripts/rules_table.py --write    puts it into docs/protocol.md, between its markers
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "docs" / "model" / "runs.txt"
GUARDS = ROOT / "docs" / "model" / "guards.toml"
PAGE = ROOT / "docs" / "protocol.md"
BLOCK = re.compile(r"(<!-- rules -->\n).*?(<!-- end of rules -->)", re.DOTALL)


def rules() -> list[tuple[str, str, str]]:
    """(rule, scenario, switch) of each counterexample that the model must find."""
    lines = [[part.strip() for part in line.split("|")] for line in RUNS.read_text().splitlines()]
    return [
        (rule, scenario, switches.split()[-1])
        for kind, scenario, switches, rule in (line for line in lines if len(line) == 4)
        if kind == "counterexample"
    ]


def guards() -> dict[str, list[str]]:
    return tomllib.loads(GUARDS.read_text())


def table() -> str:
    rows = ["| rule | left out in the model, found in | guarded in the code by |", "| --- | --- | --- |"]
    tests = guards()
    for rule, scenario, switch in rules():
        names = "<br>".join(f"`{test}`" for test in tests[switch])
        rows.append(f"| {rule[:1].upper()}{rule[1:]} | `{switch}`, `{scenario}` | {names} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page with the table as it should be."""
    return BLOCK.sub(lambda found: found[1] + table() + found[2], PAGE.read_text())


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        print(table(), end="")
