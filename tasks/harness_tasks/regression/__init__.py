"""A number for each text or pair of texts. :mod:`.task` and :mod:`.scoring` import no torch."""
