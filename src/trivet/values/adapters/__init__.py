"""What frameworks bring: the only modules of `trivet.values` that may import one."""
