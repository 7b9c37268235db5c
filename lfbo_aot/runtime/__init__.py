"""What is served: look-ups, and the Helion kernels that use them."""
