"""Words to ids and ids to words: tokenizers, chat templates, channels; no model, no network."""
