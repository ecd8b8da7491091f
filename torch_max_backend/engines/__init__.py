"""What executes a MAX graph, besides MAX's own engine."""
