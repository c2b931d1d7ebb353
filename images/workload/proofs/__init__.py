"""What makes a figure credible: the precision really used, and the losses of eager float32. Runs after everything timed."""
