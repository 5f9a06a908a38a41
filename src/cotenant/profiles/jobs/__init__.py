"""Training jobs to measure, and the hook by which any job reports its steps.

``python -m cotenant.profiles.jobs convolution --batch 16`` trains one of the included networks
until it is stopped. One's own job needs the hook alone (``cotenant.profiles.jobs.steps``).
"""
