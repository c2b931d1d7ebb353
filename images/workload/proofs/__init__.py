"""What makes a number believable: the precision really used, and the losses that eager float32 gives. After all is timed."""
