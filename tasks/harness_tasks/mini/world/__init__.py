"""The mini world: a generated English-like language, a corpus in it, and five tasks with known answers.

Function words are English, every other word is generated from seeded stems. ``python -m
harness_tasks.mini.world FOLDER`` writes corpus, tasks and a manifest; docs/mini.md describes the
properties that are built in and why. This package imports only the standard library.
"""
