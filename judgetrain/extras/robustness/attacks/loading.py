"""Attacks from data: a wording is a YAML file with a list of them, which a user may replace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from judgetrain.errors import ConfigError
from judgetrain.extras.robustness.attacks.attack import PLACES, REPLACING, WAYS, Attack
from judgetrain.extras.robustness.attacks.names import DEFAULT, FORGERIES, KINDS, WORDINGS, wording_file


def load_attacks(wording: str = DEFAULT, chosen: Sequence[str] = KINDS, key: str = "wording") -> list[Attack]:
    """The attacks of a wording, and the forgeries, that are named by kind or by name, in the order of the file.

    Raises:
        ConfigError: no such wording, one that is none (names file, attack and what is allowed), or a name that neither
            a kind nor an attack has.
    """
    found = _wording(str(wording_file(wording)), key)
    known = {*KINDS, *(attack.name for attack in found)}
    if unknown := [name for name in chosen if name not in known]:
        kinds = ", ".join(KINDS)
        names = ", ".join(a.name for a in found if a.kind != "forgery")
        raise ConfigError(f"{key}: {unknown[0]!r} is no attack; allowed are the kinds {kinds}, and {names}")
    return [attack for attack in found if {attack.kind, attack.name} & set(chosen)]


@cache
def _wording(file: str, key: str) -> tuple[Attack, ...]:
    path = Path(file).expanduser()
    if not path.is_file():
        shipped = ", ".join(sorted(p.stem for p in WORDINGS.glob("*.yaml")))
        raise ConfigError(f"{key}={file!r}: no such wording: neither a file nor one of {shipped}")
    forgeries = [
        {"name": row["id"], "kind": "forgery", "place": row["place"], "text": row["text"]} for row in _read(FORGERIES)
    ]
    attacks = [_checked(path, row) for row in (*_read(path), *forgeries)]
    names = [attack.name for attack in attacks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path}: two attacks are called {twice!r}; names must differ")
    return tuple(attacks)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: expected a list of attacks, as in - {{name: nothing, kind: empty, how: instead}}")
    return rows


def _checked(path: Path, row: Any) -> Attack:
    known = ", ".join(Attack.__dataclass_fields__)
    if not isinstance(row, dict) or not {"name", "kind"} <= set(row):
        raise ConfigError(f"{path}: expected attacks with name and kind, found {row!r}")
    wrong = [k for k, v in row.items() if k not in Attack.__dataclass_fields__ or not isinstance(v, str)]
    if wrong:
        raise ConfigError(f"{path}: attack {row['name']!r}: {wrong[0]!r} must be one of {known}, and a text in quotes")
    attack = Attack(**row)
    for name, allowed in (("kind", KINDS), ("how", WAYS), ("place", PLACES)):
        if getattr(attack, name) not in allowed:
            said = getattr(attack, name)
            raise ConfigError(f"{path}: attack {attack.name!r}: {name}={said!r}: allowed are {', '.join(allowed)}")
    if (attack.kind == "empty") != (attack.how in REPLACING):
        raise ConfigError(
            f"{path}: attack {attack.name!r}: kind empty goes with how {' or '.join(REPLACING)}, and no other kind does"
        )
    return attack
