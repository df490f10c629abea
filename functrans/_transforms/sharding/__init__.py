"""One function on many pieces of data: chunks on executors, sums over shards."""
