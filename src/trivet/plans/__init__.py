"""Plans: compiled models, kept under keys that name everything they depend on."""
