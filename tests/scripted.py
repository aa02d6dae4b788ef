"""The scripted engine by its earlier name; it lives in :mod:`tests.builders.scripted`."""

from tests.builders.scripted import Answer as Answer
from tests.builders.scripted import Ending as Ending
from tests.builders.scripted import ScriptedEngine as ScriptedEngine
from tests.builders.scripted import by_length as by_length
from tests.builders.scripted import comparison as comparison
from tests.builders.scripted import criteria as criteria
from tests.builders.scripted import judged as judged
from tests.builders.scripted import noisy as noisy
from tests.builders.scripted import number as number
