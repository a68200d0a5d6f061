"""Probes to come."""

from trivet.audit.finding import Probe

PROBES: tuple[Probe, ...] = ()
