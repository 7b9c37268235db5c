"""What is declared: dims, buckets, kernels, devices. Knows nothing of the other rooms."""
