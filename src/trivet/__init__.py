"""Trivet: a cache for AI inference.

Never compile or compute the same thing twice, and never serve a wrong cached thing.
"""

__version__ = "0.1.0"
