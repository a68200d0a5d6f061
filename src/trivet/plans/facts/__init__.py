"""What identifies frameworks and the machine that they compile on, from files alone.

Below backends, guarded folders and the audit, which all have to know the same frameworks. Each
framework's module says which package it is (``PACKAGE``) and which of its environment variables
count (``ENVIRONMENT``).
"""
