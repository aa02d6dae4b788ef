"""Members of cascades and juries: where they are named, what is refused, and what their answers depend on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.errors import ConfigError
from judgetrain.judges.deciding import Thresholds
from judgetrain.judges.kinds.kind import Arguments, Use, judge_kind, kind_of
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.panels_config import MemberConfig, PanelsConfig

if TYPE_CHECKING:
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.judges.factory import Models
    from judgetrain.judges.settings import ModelSettings


def members_of(settings: ModelSettings, method: Method) -> Sequence[MemberConfig]:
    """Return the members of a cascade or jury (ConfigError: its section has no entry of this name)."""
    # The section has the kind's name. It is None where no method of the stage reads it (ModelSettings).
    panels: PanelsConfig = getattr(settings, method.kind) or PanelsConfig()
    panel = panels.named(method.target)
    if panel is not None:
        return panel.members
    names = ", ".join(entry.name for entry in panels.judges) or "none"
    raise ConfigError(f"{method.text!r}: {method.kind}.judges has no such entry, only {names}")


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse, before anything runs, members that are too few, or that are no judges (ConfigError)."""
    members = members_of(settings, method)
    check_members(members, method)
    for place, member in enumerate(members):
        of_member = Method.parse(member.judge)
        key = f"{method.kind}.judges[{method.target}].members[{place}].judge"
        # It is asked as where comparisons have no labels: what learns from a benchmark's labels is no member.
        use_of_member = replace(use, key=key, branches=None, labelled=False)
        judge_kind(of_member, use_of_member).check(settings, of_member, use_of_member)
        # Read for its errors alone: the judge reads it again when it is made.
        if member.decided is not None:
            Thresholds.load(member.decided, key.replace(".judge", ".decided"))


def check_members(members: Sequence[MemberConfig], method: Method) -> None:
    """Refuse fewer than two members, the same one twice, and members that have members (ConfigError)."""
    if len(members) < 2:
        raise ConfigError(f"{method.text!r}: it needs two members at least, found {len(members)}")
    # By the name in tables, which is what the steps of an answer tell members apart by.
    names = [Method.parse(member.judge).name for member in members]
    for member, name in zip(members, names, strict=True):
        if names.count(name) > 1:
            raise ConfigError(f"{method.text!r}: the member {name!r} stands there twice")
        # ModelSettings.with_members looks one level deep: models of a member's members would be in no check and no
        # fingerprint.
        if kind_of(Method.parse(member.judge)).target.panel:
            raise ConfigError(f"{method.text!r}: a member cannot be a cascade or a jury itself, as {member.judge!r} is")
        if member.decided is not None and method.kind != "cascade":
            raise ConfigError(f"{method.text!r}: a jury decides nothing by its members' thresholds: leave out decided")


def options(models: Models, method: Method, branches: int) -> JudgeOptions:
    """Return the members, as the run's settings have them."""
    return JudgeOptions(members=members_of(models.settings, method))


def arguments(method: Method, directory: Path | None, call: Arguments) -> JudgeOptions:
    """Return the members that a caller in Python names, texts or mappings (ConfigError: none, or something else)."""
    changes = dict(call.changes)
    listed = changes.pop("members", None)
    if changes:
        raise ConfigError(f"{method.text!r} has no setting {next(iter(changes))}; its members have their own")
    if not listed:
        raise ConfigError(f"{method.text!r}: name its judges with members=['DIR@3', 'external']")
    # The letters of a text would be members.
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise ConfigError(f"{method.text!r}: members={listed!r}: expected a list, as in members=['DIR@3', 'external']")
    members = []
    for entry in listed:
        if isinstance(entry, MemberConfig):
            members.append(entry)
        elif isinstance(entry, str):
            members.append(MemberConfig(judge=entry))
        else:
            try:
                members.append(MemberConfig(**entry))
            except TypeError as error:
                raise ConfigError(
                    f"{method.text!r}: a member has the keys judge and decided, found {entry!r}"
                ) from error
    check_members(members, method)
    return JudgeOptions(members=members)


def identity(models: Models, method: Method, hashes: ContentHashes, branches: int) -> dict[str, Any]:
    """Return what the answers depend on: each member, how it is asked, and its thresholds."""
    members = []
    for member in members_of(models.settings, method):
        of_member = Method.parse(member.judge)

        # A member without @BRANCHES is asked with one, as in stage judge.
        most = of_member.most or 1
        kind = kind_of(of_member)
        options_of_member = models.options(of_member, most)
        decided = None
        if member.decided is not None:
            # The file's content, not its path: thresholds that are chosen anew change what the cascade answers.
            decided = hashes.of(member.decided)
        members.append(
            {
                "model": models.identity(of_member, hashes),
                "judge": dict(kind.setup.identity(models, of_member, hashes, most)),
                "engine": models.own_engine(of_member),
                # The last four entries decide how an answer is read, and with it which member is asked next.
                # Verdicts are read at once, where trees that are kept could be read in another way.
                "rule": [options_of_member.aggregation, options_of_member.tie, options_of_member.least_read],
                "fitted": options_of_member.fitted,
                "thresholds": options_of_member.thresholds,
                "decided": decided,
            }
        )
    # No name: two cascades of the same members answer alike, so that renaming one asks nothing again.
    return {"kind": method.kind, "name": None, "members": members}


def scores(settings: ModelSettings, method: Method) -> bool:
    """Return whether every member gives a single response a score."""
    members = [Method.parse(member.judge) for member in members_of(settings, method)]
    return all(kind_of(member).scores(settings, member) for member in members)
