"""Live servers' benchmarks, read from the results of vLLM, aiperf and guidellm."""
