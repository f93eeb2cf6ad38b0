"""What gsebo costs, beside what one would write today: ``python -m benchmarks``."""
