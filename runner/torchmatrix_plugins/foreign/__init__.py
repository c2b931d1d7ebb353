"""Read, compare and audit the result files of other benchmark tools: compare FILE FILE, audit FILE."""
