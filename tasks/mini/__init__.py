"""The bundled demo: three small tasks, a corpus, and three tiny encoders trained on it by :mod:`make_demo`.

Everything here is made up from our own templates and word lists, so that the demo runs anywhere, offline, in
minutes. It shows how the harness works; it says nothing about how published encoders compare.
"""
