"""The object model: blobs, trees, chunks and their encoding. Pure values; no store, no framework."""
