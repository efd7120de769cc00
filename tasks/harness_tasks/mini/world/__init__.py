"""The mini world: a generated English-like language, a corpus in it, and five tasks with known answers.

Function words are English, every other word is made up from a seeded stock of stems. ``python -m
harness_tasks.mini.world FOLDER`` writes corpus, tasks and a manifest; docs/mini.md says what is built in and
why. Nothing here imports more than the standard library.
"""
