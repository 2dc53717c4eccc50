"""Hand-over between frameworks."""
