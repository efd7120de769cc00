"""The subcommands, one module each with ``main(argv) -> exit code``; loaded when called."""
