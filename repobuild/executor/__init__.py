"""Where jobs run: on this machine, later on a cluster."""
