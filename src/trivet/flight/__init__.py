"""Single-flight: who computes, and how the others wait."""

from trivet.flight.filelock import FileLock, FileLocks
from trivet.flight.flights import Flight, Flights, computing

__all__ = ["FileLock", "FileLocks", "Flight", "Flights", "computing"]
