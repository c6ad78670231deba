"""The command line. It calls the public surface and shows what comes back; it decides nothing itself."""
