"""Model organisms: the planted language and the models that are trained on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead._lazy import attach

if TYPE_CHECKING:
    from levelhead.calibrate.organisms.chat import ChatOrganism as ChatOrganism
    from levelhead.calibrate.organisms.chat import make_chat_organism as make_chat_organism
    from levelhead.calibrate.organisms.organism import Organism as Organism
    from levelhead.calibrate.organisms.organism import make_organism as make_organism

__getattr__, __dir__, __all__ = attach(__name__, __file__)
