"""What a job uses alone on a device: utilisation, bandwidth, memory and time of an iteration.

``StepWork`` is one training step boiled down to what a device sees of it; ``Roofline`` says
analytically what it takes of a datasheet; ``ResourcePredictor`` learns from measured solo runs
what the roofline gets wrong.
"""
