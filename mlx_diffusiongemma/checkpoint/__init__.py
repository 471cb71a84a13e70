"""Files to arrays: finding a model, checking its files, naming and loading its weights."""
