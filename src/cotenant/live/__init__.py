"""The live scheduler: the loop and the policies of the simulator on real processes of one machine.

``docs/live.md`` is the guide; ``docs/decisions/0014-live.md`` says how the parts fit together.
"""
