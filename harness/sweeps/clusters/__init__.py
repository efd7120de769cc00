"""Sweeps on Ray and Slurm."""
