"""Experiment loggers: CSV, TensorBoard and wandb, one module and one file in ``conf/logger`` per logger."""
