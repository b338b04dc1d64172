"""Networks of layers that are no language models: images, recommendations, diffusion."""
