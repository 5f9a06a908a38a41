"""Parts that only one of the published schedulers uses; named after it or after its own terms."""
