"""How a process is seen from outside: metrics, health, readiness."""
