"""Metrics of judges: pure functions on arrays. How one is added to the table: docs/extending.md, section "A metric"."""

from judgetrain.evaluate.metrics.verdicts import (
    accuracy as accuracy,
)
from judgetrain.evaluate.metrics.verdicts import (
    agreement as agreement,
)
from judgetrain.evaluate.metrics.verdicts import (
    auc as auc,
)
from judgetrain.evaluate.metrics.verdicts import (
    cohens_kappa as cohens_kappa,
)
from judgetrain.evaluate.metrics.verdicts import (
    conflict_as_tie as conflict_as_tie,
)
from judgetrain.evaluate.metrics.verdicts import (
    consistency as consistency,
)
from judgetrain.evaluate.metrics.verdicts import (
    correlations as correlations,
)
from judgetrain.evaluate.metrics.verdicts import (
    decided as decided,
)
from judgetrain.evaluate.metrics.verdicts import (
    length_bias as length_bias,
)
from judgetrain.evaluate.metrics.verdicts import (
    longer_preference as longer_preference,
)
from judgetrain.evaluate.metrics.verdicts import (
    merged as merged,
)
from judgetrain.evaluate.metrics.verdicts import (
    position_bias as position_bias,
)
from judgetrain.evaluate.metrics.verdicts import (
    single_order_accuracy as single_order_accuracy,
)
from judgetrain.evaluate.metrics.verdicts import (
    unreadable as unreadable,
)
from judgetrain.evaluate.metrics.verdicts import (
    without_ties as without_ties,
)
