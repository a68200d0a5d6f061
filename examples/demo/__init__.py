"""One job, six ways: serve two real models, cold, warm, and when things go wrong.

Run it with ``make demo``, or ``python -m examples.demo --json results.json``.
"""
