"""What every store must do: subclass `StoreContract`, give it a ``backend`` fixture, and run pytest.

Source of the contract: `rath_bridge.store.protocol.Backend`. One file for each thing that a store does.
"""

from __future__ import annotations

from rath_bridge.testing.store.arriving import Arriving
from rath_bridge.testing.store.chunks import Chunks
from rath_bridge.testing.store.erasing import Erasing
from rath_bridge.testing.store.index import Index
from rath_bridge.testing.store.lines import Lines
from rath_bridge.testing.store.races import Races
from rath_bridge.testing.store.whole import Whole


class StoreContract(Chunks, Lines, Index, Races, Whole, Erasing, Arriving):
    """Subclass it with a ``backend`` fixture that gives an empty store; override `reopen` where data outlives the process."""
