"""What tuning runs on: a GPU, Triton's interpreter, or recorded trials, behind one interface."""
