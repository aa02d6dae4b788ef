"""The sections ``cascade`` and ``jury`` of the configuration: judges that are made of several."""

from dataclasses import dataclass

from judgetrain.keys import beside, key, of_file


def _member_directory(text: str, owner: object) -> str | list[str | None] | None:
    """Return the directory of the model that a member's name holds, as of other judges' names."""
    # Imported at use, as methods read kinds, which read this module.
    from judgetrain.judges.method import method_directory

    return method_directory(text, owner)


@dataclass
class MemberConfig:
    """A member of a cascade or a jury."""

    judge: str = key("", "the member, as in verdicts.judge", content=beside(_member_directory))
    decided: str | None = key(
        None, "in a cascade, decided.json by which its answers are decided; None: the judge's own", content=of_file
    )


@dataclass
class PanelConfig:
    """Several judges that answer as one."""

    name: str = key("", "the judge is called cascade:NAME, or jury:NAME")
    members: list[MemberConfig] = key([], "its members; a cascade asks them in this order")


@dataclass
class PanelsConfig:
    """Judges that are made of several."""

    judges: list[PanelConfig] = key([], "each with a name and members")

    def named(self, name: str) -> PanelConfig | None:
        """Return the entry of this name; None where there is none."""
        for panel in self.judges:
            if panel.name == name:
                return panel
        return None
