"""The bundled demo model: a tiny trained checkpoint, as files beside this one. No code."""
