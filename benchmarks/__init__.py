"""The figures of the house plan, each beside its peer in the same run. Run them with ``make bench``."""
