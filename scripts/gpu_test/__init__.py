"""gpu_test - what scripts/gpu-test consists of."""
