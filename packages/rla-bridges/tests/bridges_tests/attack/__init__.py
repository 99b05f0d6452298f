"""What `make attack` tries of this package."""

from bridges_tests.attack.hostile_requests import Requests

AREAS = {Requests: 0.1}
