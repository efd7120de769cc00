"""The mini world: a generated language, five tasks and a corpus in it (:mod:`world`), and encoders of every
family that were pretrained on that corpus (:mod:`zoo`).

Everything here is our own, so that the whole harness runs anywhere, offline, in minutes. It shows how the
harness works and what transfer does in a small world; it says nothing about how published encoders compare.
"""
