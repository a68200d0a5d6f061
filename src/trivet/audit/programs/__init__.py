"""What the audit's child processes run, and the only part of it that imports frameworks."""
