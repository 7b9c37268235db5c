"""Two fused operations for inference. `mykern.ops` holds the kernels; it needs torch and Helion."""
