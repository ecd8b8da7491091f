"""From a MAX graph to a plan: what runs, in which order, on which memory. Nothing is compiled."""
