"""Experiment loggers: csv, TensorBoard and wandb."""
