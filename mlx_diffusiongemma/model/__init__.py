"""Ids to logits: the network in encoder and canvas mode. Knows no text and no sampler."""
