"""The rooms within judges: imports go one way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import judgetrain.judges

ROOT = Path(judgetrain.judges.__file__).parent
MAY_IMPORT = {
    "prompting": set(),
    "trees": {"prompting"},
    "kinds": {"prompting", "trees"},
    "views": {"prompting", "trees", "kinds"},
}


def test_every_room_has_its_wall() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(MAY_IMPORT)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_from_those_below_it_alone(room: str) -> None:
    found = {
        name
        for path in (ROOT / room).rglob("*.py")
        for name in re.findall(r"judgetrain\.judges\.(\w+)", path.read_text(encoding="utf-8"))
        if (ROOT / name).is_dir()
    }
    assert found - {room} <= MAY_IMPORT[room]
