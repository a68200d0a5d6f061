"""Memory: the tier of live values. Nothing in it is verified again; what enters it was."""

from trivet.memory.entry import MemoryEntry
from trivet.memory.footprint import entry_size, footprint
from trivet.memory.tier import MemoryStats, MemoryTier

__all__ = ["MemoryEntry", "MemoryStats", "MemoryTier", "entry_size", "footprint"]
