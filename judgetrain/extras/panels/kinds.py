"""The kinds ``cascade:NAME`` and ``jury:NAME``: several judges as one, named in a section of the kind's name."""

from judgetrain.judges.kinds.kind import Forms, Kind, Setup, Target, later

_ROOM = __name__.rpartition(".")[0]


def _panel(name: str, judge: str) -> Kind:
    """Return the record of a kind of judges that are made of others."""
    return Kind(
        name=name,
        forms=Forms(evaluate=f"{name}:NAME", python=f"{name}:NAME (with members=)"),
        target=Target(panel=True),
        # Imported at the first call, here and below: every parsed method name looks at this record.
        check=later(f"{_ROOM}.checks:check"),
        build=later(f"{_ROOM}.judges:{judge}"),
        setup=Setup(
            # The section that holds the members has the kind's name, which is also the field of the settings.
            settings=(name,),
            options=later(f"{_ROOM}.checks:options"),
            arguments=later(f"{_ROOM}.checks:arguments"),
            identity=later(f"{_ROOM}.checks:identity"),
        ),
        scores=later(f"{_ROOM}.checks:scores"),
    )


CASCADE = _panel("cascade", "build_cascade")
JURY = _panel("jury", "build_jury")
