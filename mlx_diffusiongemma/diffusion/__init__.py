"""Logits to canvas: samplers, schedule, stopping and the denoising loop. Ids only, no text."""
