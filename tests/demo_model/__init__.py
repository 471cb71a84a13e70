"""Training of the bundled demo model: tasks, tokenizer, trainer and evaluation."""
