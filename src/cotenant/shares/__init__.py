"""Enforcing shares of a device's compute: limiter and controllers, simulated here, without a device."""
